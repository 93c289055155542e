"""Renders metrics as a JSON object, as the API describes, or in a format of Prometheus, as a client asks for it."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import falcon
import orjson
from falcon import mediatypes
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Sample

from rioni.domain.errors import NotAcceptable


OPEN_METRICS = "application/openmetrics-text"
TEXT = "text/plain"
MEDIA_TYPES = (falcon.MEDIA_JSON, OPEN_METRICS, TEXT)
"""Formats in the order of preference if a client accepts several equally."""
FORM_VERSION = "4.0.0"
"""Of the JSON object: its members are those of Dropwizard Metrics, which clients of the API know."""


def rendered_metrics(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The metrics and their content type.

    JSON for clients that accept it or anything; Prometheus' text and OpenMetrics for those that name one of them and do
    not prefer JSON.

    Raises:
        NotAcceptable: the client accepts none of the three.
    """
    # What a wildcard covers is not named: Prometheus' own requests end in `*/*`, as those of most other clients begin.
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
    """Each member is called like a series in Prometheus' text format: `name{label="value"}`."""
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
