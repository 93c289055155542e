"""The metrics of a broker, looked at twice: what they are, and how they change."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from rioni.cli.doctor.model import NotLookedAt, source
from rioni.cli.doctor.site import Site


class Series(msgspec.Struct, frozen=True):
    """A value of a metric, and the one that it had at first."""

    name: str
    labels: Mapping[str, str]
    value: float
    before: float

    @property
    def growth(self) -> float:
        """What came between the two looks; a counter that began anew has grown by all that it has."""
        return self.value - self.before if self.value >= self.before else self.value


class Metrics(msgspec.Struct, frozen=True):
    """All metrics of a node."""

    series: list[Series]
    seconds: float
    """Between the two looks."""
    text: str = ""
    """The second one, as the broker has sent it."""

    def all(self, name: str, **labels: str) -> Iterator[Series]:
        """The series of a metric that have these labels, among others."""
        for each in self.series:
            if each.name == name and labels.items() <= each.labels.items():
                yield each

    def total(self, name: str, **labels: str) -> float:
        """The sum of their values."""
        return sum(each.value for each in self.all(name, **labels))

    def growth(self, name: str, **labels: str) -> float:
        """The sum of their growth."""
        return sum(each.growth for each in self.all(name, **labels))

    def by(self, name: str, label: str) -> dict[str, float]:
        """The sums of the values by a label."""
        found: defaultdict[str, float] = defaultdict(float)
        for each in self.all(name):
            found[each.labels.get(label, "")] += each.value
        return dict(found)


@source
def metrics(site: Site) -> Metrics:
    """Ask for the metrics twice."""
    began_s = time.monotonic()
    first = site.client.monitoring.metrics_text()
    site.pause()
    second = site.client.monitoring.metrics_text()
    return compared(first, second, time.monotonic() - began_s)


def compared(first: str, second: str, seconds: float) -> Metrics:
    """The metrics of two answers in Prometheus' text format; raises NotLookedAt where they are not in that format."""
    before = {_key(name, labels): value for name, labels, value in _samples(first)}
    series = [
        Series(name, labels, value, before.get(_key(name, labels), 0.0)) for name, labels, value in _samples(second)
    ]
    return Metrics(series, seconds, second)


def _samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                yield sample.name, sample.labels, sample.value
    except ValueError as ex:
        raise NotLookedAt(f"the metrics are not in Prometheus' text format: {ex}") from ex


def _key(name: str, labels: Mapping[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())
