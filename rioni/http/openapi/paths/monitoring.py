"""OpenAPI operations of monitoring: nodes, metrics, checks of health, and the description of the API."""

from rioni.http.metrics.sampler import NAMES
from rioni.http.openapi.builders import (
    BOOLEAN,
    INTEGER,
    STRING,
    TIMESTAMP,
    Json,
    also,
    answer,
    array,
    listed,
    literal,
    of,
    operation,
    or_problem,
    query,
)
from rioni.wire import administration


_LIVE = {
    "status": "ok",
    "worker": "rioni-1-4711-5f0c8e2ab913",
    "checks": {"housekeeping": {"status": "ok", "detail": "done 0 s ago"}},
}
_READY = _LIVE | {
    "checks": {
        "database": {"status": "ok", "detail": "PostgreSQL"},
        "kafka": {
            "status": "warning",
            "detail": "storage default: brokers: 1",
            "warnings": ["Kafka has a single broker."],
        },
    }
}
_NOT_READY = _LIVE | {
    "status": "failed",
    "checks": {"zookeeper": {"status": "failed", "reason": "No ZooKeeper server responds."}},
}
_HANGING = _LIVE | {
    "status": "failed",
    "checks": {"housekeeping": {"status": "failed", "reason": "The background jobs of this process hang: restart it."}},
}
_NODE = {
    "id": "4c0ce8b8-5d0f-4a53-9a1c-6ad7ad0a2b33",
    "host": "rioni-1",
    "port": 8080,
    "version": "0.1.1",
    "configured_workers": 1,
    "workers": [
        {
            "number": 0,
            "pid": 4711,
            "started_at": "2026-11-20T08:00:00.000Z",
            "reported_at": "2026-11-20T10:00:00.000Z",
            "log_position": 1234,
            "connections": 17,
            "streams": 5,
            "requests_per_second": 231.5,
        }
    ],
}
_HISTORY = {
    "step": 60,
    "times": ["2026-11-20T10:00:00.000Z", "2026-11-20T10:01:00.000Z"],
    "series": [{"name": "published_events", "labels": {"event_type": "order.created"}, "values": [12.5, None]}],
    "matched": 1,
}


def _checks(title: str) -> Json:
    described = of(administration.Health)
    return described | {"title": title, "properties": described["properties"] | {"status": literal(f"{title}Status")}}


_OPERATING: Json = {
    "GET /nodes": operation(
        "List nodes",
        answer(
            "The nodes with their worker processes, by host name and port.",
            listed("Nodes", administration.Node),
            {"items": [_NODE]},
            headers=("Cache-Control",),
        ),
        description="Every worker reports every ten seconds. Those that have not for 30 seconds are left out, so a "
        "node with fewer `workers` than `configured_workers` lacks some.",
    ),
    "GET /metrics": operation(
        "Show metrics",
        also(
            also(
                answer(
                    "All metrics of the node, each member called like a series of Prometheus: "
                    '`name{label="value"}`. Clients that name `text/plain` or `application/openmetrics-text` '
                    "in `Accept` get Prometheus' text format or OpenMetrics.",
                    administration.Metrics,
                    headers=("Cache-Control",),
                ),
                "text/plain; version=0.0.4; charset=utf-8",
            ),
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
    ),
    "GET /metrics/history": operation(
        "Show the metrics of the last hour",
        answer(
            "Series of the node, of all its worker processes together, by name. Rates are per second. Series "
            "that were zero all the time may be missing.",
            administration.MetricsHistory,
            _HISTORY,
            headers=("Cache-Control",),
        ),
        description="A sample is taken every ten seconds. With a larger `step` a value is the mean of rates, and "
        "the maximum of others: " + "; ".join(f"`{name}`: {text}" for name, (_, text) in NAMES.items()) + ".",
        parameters=[
            query("name", "Names of series, separated by commas.", array(literal("MetricName")), ["published_events"]),
            query("event_type", "Only series of these event types.", array(STRING), ["order.created"]),
            query("subscription", "Only series of these subscriptions.", array(STRING)),
            query("total", "Only what parts amount to, or only these parts; both where absent.", BOOLEAN),
            query("since", "Only values from this time on.", TIMESTAMP, "2026-11-20T10:00:00Z"),
            query("step", "Seconds of a value.", INTEGER | {"minimum": 10, "maximum": 3600, "default": 10}, 60),
            query(
                "order",
                "Which come first: by name, or by the largest last value.",
                literal("SeriesOrder") | {"default": "name"},
            ),
            query("limit", "How many series are shown.", INTEGER | {"minimum": 1, "maximum": 1000, "default": 100}, 20),
        ],
    ),
    "GET /health": operation("Liveness check", answer("It is alive.", STRING, "OK", media="text/plain; charset=utf-8")),
    "GET /livez": operation(
        "Check the background jobs of the process",
        {
            200: answer("It is alive.", _checks("Liveness"), _LIVE, headers=("Cache-Control",)),
            503: or_problem(
                answer(
                    "It is not alive; a restart may help.", _checks("NoLiveness"), _HANGING, headers=("Cache-Control",)
                )
            ),
        },
    ),
    "GET /readyz": operation(
        "Readiness check",
        {
            200: answer("It is ready.", _checks("Readiness"), _READY, headers=("Cache-Control",)),
            503: or_problem(
                answer("Not ready, or shutting down.", _checks("NoReadiness"), _NOT_READY, headers=("Cache-Control",))
            ),
        },
    ),
    "GET /version": operation("Show the version", answer("The version of the broker.", administration.Version)),
    "GET /openapi.json": operation("Show the description of the API", answer("This document.", {"type": "object"})),
    "GET /docs": operation(
        "Read the description of the API",
        answer(
            "This document as a page to read.",
            STRING,
            media="text/html; charset=utf-8",
            headers=("Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy"),
        ),
    ),
}


OPERATIONS: Json = {"Operating": _OPERATING}
