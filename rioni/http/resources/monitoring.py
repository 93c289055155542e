"""`/health`, `/livez`, `/readyz`, `/version`, `/metrics`, `/metrics/history`: endpoints for monitoring."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import falcon
import orjson
from falcon import mediatypes
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Sample

from rioni import __version__
from rioni.domain.errors import Malformed, NotAcceptable
from rioni.domain.ports.host import Health
from rioni.domain.texts import proposal
from rioni.domain.timestamps import rfc3339
from rioni.http.dependencies import Dependencies, Resource
from rioni.http.metrics.history_table import EVERY_S, SAMPLES, History, Series
from rioni.http.metrics.sampler import NAMES, PARTITION, PARTS, RATES, SEPARATOR
from rioni.http.request_parsing import integer_within, listed, since_ms


# Renders metrics as a JSON object, as the API describes, or in a format of Prometheus, as a client asks for it.

OPEN_METRICS = "application/openmetrics-text"
TEXT = "text/plain"
MEDIA_TYPES = (falcon.MEDIA_JSON, OPEN_METRICS, TEXT)
"""Formats in the order of preference if a client accepts several equally."""
FORM_VERSION = "4.0.0"
"""The version of the JSON object: its members are those of Dropwizard Metrics, which clients of the API know."""


def rendered_metrics(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The metrics and their content type.

    JSON for clients that accept it or anything; Prometheus' text and OpenMetrics for those that name one of them and do
    not prefer JSON.

    Raises:
        NotAcceptable: the client does not accept any of the three.
    """
    # Wildcards do not count as a wish: Prometheus' own requests end in `*/*`, and those of most other clients begin
    # with it.
    named = ",".join(part for part in accept.split(",") if "*" not in part.partition(";")[0])
    wanted = max(MEDIA_TYPES, key=lambda media: _quality(media, named))
    if not _quality(wanted, named):
        wanted = next((media for media in MEDIA_TYPES if _quality(media, accept or "*/*")), "")
    if wanted == falcon.MEDIA_JSON:
        return orjson.dumps(_json_object(registry.collect())), falcon.MEDIA_JSON
    if not wanted:
        raise NotAcceptable(
            f"Metrics are application/json, text/plain or {OPEN_METRICS}; the Accept header '{accept}' excludes them"
        )
    # Versions and escapings that a client asks for make no difference to names like ours.
    encode, content_type = choose_encoder(wanted)
    return encode(registry), content_type


def _quality(media: str, accept: str) -> float:
    try:
        return mediatypes.quality(media, accept) if accept else 0.0
    except (ValueError, falcon.HTTPError):
        return 0.0


def _json_object(families: Iterable[Metric]) -> dict[str, Any]:
    """Each member is named like a series in Prometheus' text format: `name{label="value"}`."""
    gauges: dict[str, Any] = {}
    counters: dict[str, Any] = {}
    histograms: dict[str, dict[str, Any]] = defaultdict(lambda: {"buckets": {}})
    for family in families:
        for sample in family.samples:
            if sample.name.endswith("_created"):
                continue
            if family.type == "gauge":
                gauges[_series(sample.name, sample)] = {"value": sample.value}
            elif family.type == "counter":
                counters[_series(sample.name, sample)] = {"count": _number(sample.value)}
            else:
                histogram = histograms[_series(family.name, sample)]
                member = sample.name.removeprefix(f"{family.name}_")
                if member == "bucket":
                    histogram["buckets"][sample.labels["le"]] = _number(sample.value)
                else:
                    histogram[member] = _number(sample.value)
    return {
        "version": FORM_VERSION,
        "gauges": gauges,
        "counters": counters,
        "histograms": histograms,
        "meters": {},
        "timers": {},
    }


def _series(name: str, sample: Sample) -> str:
    labels = ",".join(f'{label}="{value}"' for label, value in sorted(sample.labels.items()) if label != "le")
    return f"{name}{{{labels}}}" if labels else name


def _number(value: float) -> float:
    return int(value) if value == int(value) else value


# --- `/health`, `/livez`, `/readyz`, `/version`, `/metrics`: endpoints for monitoring ---


class HealthResource(Resource):
    """`/health`: the process answers; public in every mode."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Say OK."""
        resp.content_type = falcon.MEDIA_TEXT
        resp.text = "OK"


class LiveResource(Resource):
    """`/livez`: whether the process works; if not, a restart may help."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Show the internal health checks, with 503 if one has failed."""
        _show(resp, self._dependencies, self._dependencies.live.results(), stopping=False)


class ReadyResource(Resource):
    """`/readyz`: whether the process can serve requests."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Show the health checks of dependencies, with 503 if one has failed, or the process is shutting down."""
        _show(
            resp, self._dependencies, self._dependencies.ready.results(), stopping=self._dependencies.stopping.is_set()
        )


def _show(resp: falcon.Response, dependencies: Dependencies, results: Mapping[str, Health], *, stopping: bool) -> None:
    failed = any(health.reason for health in results.values())
    if stopping or failed:
        resp.status = HTTPStatus.SERVICE_UNAVAILABLE.value
    status = "stopping" if stopping else "failed" if failed else "ok"
    checks = {name: _shown(health) for name, health in results.items()}
    resp.set_header("Cache-Control", "no-store")
    resp.data = orjson.dumps({"status": status, "worker": dependencies.coordinator.worker, "checks": checks})


def _shown(health: Health) -> dict[str, Any]:
    members = {"reason": health.reason, "detail": health.detail, "warnings": list(health.warnings)}
    return {"status": health.status} | {name: value for name, value in members.items() if value}


class VersionResource(Resource):
    """`/version`."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Name the version; there is no source revision in a package."""
        resp.data = orjson.dumps({"version": __version__, "scm_source": None})


class MetricsResource(Resource):
    """`/metrics`."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """All metrics of all worker processes, as JSON or in a format of Prometheus."""
        # PERF: 40 ms with 1,000 event types and as many subscriptions.
        resp.data, resp.content_type = self._dependencies.compute_pool(
            rendered_metrics, self._dependencies.metrics.registry(), req.accept
        )
        resp.set_header("Cache-Control", "must-revalidate,no-cache,no-store")
        resp.append_header("Vary", "Accept")


# --- `/metrics/history`: the metrics of the last hour, for charts (reference operations#metrics-history) ---

SERIES_MAX, SERIES_DEFAULT = 1_000, 100
STEP_MAX_S = EVERY_S * SAMPLES
LABELS = ("event_type", "subscription")
"""The labels by which series can be chosen."""
PARTITION_LABELS = ("subscription", "event_type", "partition")
ORDERS = ("name", "largest")


class MetricsHistoryResource(Resource):
    """Values of the node, of all its worker processes together."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Show the requested series, each value for the length of the step."""
        step_s = integer_within(req, "step", EVERY_S, EVERY_S, STEP_MAX_S)
        limit = integer_within(req, "limit", SERIES_DEFAULT, 1, SERIES_MAX)
        begin_ms = since_ms(req)
        largest = _order(req)
        # PERF: 20 ms for 100 series out of 100, 50 ms for 100 out of 4,000, which are ordered by their last value.
        history, matched = self._dependencies.compute_pool(
            self._dependencies.metrics.history.read, _chooser(req), limit, largest=largest
        )
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
        # A value that is not a number becomes null.
        resp.data = orjson.dumps(
            {"step": step_s, "times": [*map(rfc3339, times_ms)], "series": series, "matched": matched}
        )


def _chooser(req: falcon.Request) -> Callable[[Series], bool]:
    """Whether a series is requested.

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
