"""`/metrics/history`: the metrics of the last hour, for charts (reference operations#metrics-history)."""

import math
from collections.abc import Callable, Sequence

import falcon
import orjson

from rioni.domain.errors import Malformed
from rioni.domain.nearest import proposal
from rioni.domain.timestamps import rfc3339
from rioni.http.history import since_ms
from rioni.http.metrics.history_table import EVERY_S, SAMPLES, History, Series
from rioni.http.metrics.sampler import NAMES, PARTITION, PARTS, RATES, SEPARATOR
from rioni.http.request_parsing import integer_within, listed
from rioni.http.resources.resource import Resource


SERIES_MAX, SERIES_DEFAULT = 1_000, 100
STEP_MAX_S = EVERY_S * SAMPLES
LABELS = ("event_type", "subscription")
"""What series can be chosen by."""
PARTITION_LABELS = ("subscription", "event_type", "partition")
ORDERS = ("name", "largest")


class MetricsHistoryResource(Resource):
    """Values of the node, of all its worker processes together."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Show the series that are asked for, each value for as long as the step."""
        step_s = integer_within(req, "step", EVERY_S, EVERY_S, STEP_MAX_S)
        limit = integer_within(req, "limit", SERIES_DEFAULT, 1, SERIES_MAX)
        begin_ms = since_ms(req)
        largest = _order(req)
        history, matched = self._dependencies.metrics.history.read(_chooser(req), limit, largest=largest)
        times_ms, groups = _groups(history.times_ms, 1_000 * step_s, begin_ms)
        series = [
            {
                "name": each.name,
                "labels": _labels(each),
                "values": _values(history, each, groups),
            }
            for each in history.values
        ]
        resp.set_header("Cache-Control", "no-store")
        # What is not a number becomes null.
        resp.data = orjson.dumps(
            {"step": step_s, "times": [*map(rfc3339, times_ms)], "series": series, "matched": matched}
        )


def _chooser(req: falcon.Request) -> Callable[[Series], bool]:
    """Whether a series is asked for.

    Raises:
        Malformed: there are no series of a name.
    """
    names = {*listed(req, "name")}
    if unknown := sorted(names - NAMES.keys()):
        near = proposal(unknown[0], NAMES, f"; the series are {', '.join(NAMES)}")
        raise Malformed(f"name: unknown series '{unknown[0]}'{near}")
    chosen = {label: {*listed(req, label)} for label in LABELS}
    total = req.get_param_as_bool("total")

    def wanted(series: Series) -> bool:
        if names and series.name not in names:
            return False
        if total is not None and total == (series.label in (*PARTS, PARTITION)):
            return False
        # Partitions belong to their subscription.
        label = "subscription" if series.label == PARTITION else series.label
        return not any(chosen.values()) or series.value.partition(SEPARATOR)[0] in chosen.get(label, ())

    return wanted


def _labels(series: Series) -> dict[str, str]:
    if series.label == PARTITION:
        return dict(zip(PARTITION_LABELS, series.value.split(SEPARATOR), strict=True))
    return {series.label: series.value} if series.label else {}


def _groups(times_ms: Sequence[int], step_ms: int, begin_ms: int) -> tuple[list[int], list[list[int]]]:
    """The beginning of each step, and the samples that belong to it."""
    groups: dict[int, list[int]] = {}
    for number, time_ms in enumerate(times_ms):
        if time_ms >= begin_ms:
            groups.setdefault(time_ms - time_ms % step_ms, []).append(number)
    return [*groups], [*groups.values()]


def _values(history: History, series: Series, groups: Sequence[Sequence[int]]) -> list[float]:
    """The mean of rates, and the maximum of others."""
    values = history.values[series]
    combined = []
    for group in groups:
        known = [values[number] for number in group if not math.isnan(values[number])]
        mean = series.name in RATES
        combined.append(round(sum(known) / len(known) if mean else max(known), 6) if known else math.nan)
    return combined


def _order(req: falcon.Request) -> bool:
    """Whether the largest come first."""
    order = req.get_param("order") or ORDERS[0]
    if order not in ORDERS:
        raise Malformed(f"order: '{order}' is not one of {', '.join(ORDERS)}")
    return order == ORDERS[1]
