"""OpenAPI operations of settings, storages and monitoring."""

from typing import get_args

from rioni.domain.system.settings import BLACKLIST_TYPES
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
    body,
    one_of,
    operation,
    or_problem,
    path,
    query,
    schema,
    structure,
)
from rioni.http.operations import Outcome


SETTINGS, STORAGES, OPERATING = "Settings", "Storages", "Operating"

_ATTRIBUTE = {"data_type": "service", "value": "stups_nakadi"}
_ADMINS = {"admins": [_ATTRIBUTE], "readers": [_ATTRIBUTE], "writers": [_ATTRIBUTE]}
_BLACKLIST_ENTRY = (
    path(
        "blacklist_type",
        "Whom to block: producers or consumers, by application or event type; in any case.",
        "CONSUMER_APP",
        one_of("BlacklistType", BLACKLIST_TYPES),
    ),
    path("name", "The application or event type.", "shop"),
)
_BLOCKED = {"event_types": [], "apps": ["shop"]}
_STORAGE_ID = path("storage_id", "The id of the storage.", "default")
_STORAGE = {"id": "default", "storage_type": "embedded", "default": True}
_FEATURE = {"feature": "disable_event_type_creation", "enabled": True}
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


_BROKER_RIGHT, _EVENT_TYPE_RIGHT, _SUBSCRIPTION_RIGHT = (
    one_of(title, rights)
    for title, rights in (
        ("BrokerRight", ("READ", "WRITE", "ADMIN", "HISTORY")),
        ("EventTypeRight", ("READ", "WRITE", "ADMIN")),
        ("SubscriptionRight", ("READ", "ADMIN", "STREAM", "REDRIVE")),
    )
)
_OUTCOME = one_of("Outcome", get_args(Outcome))
_SUBSCRIPTION_ID = "038fc871-1d2c-4e2e-aa29-1579e8f2e71f"

_KINDS_OF_METRICS = ("gauges", "counters", "histograms", "meters", "timers")
_METRICS: Json = {
    "title": "Metrics",
    "type": "object",
    "required": ["version", *_KINDS_OF_METRICS],
    "properties": {"version": STRING, **{kind: {"type": "object"} for kind in _KINDS_OF_METRICS}},
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


def _checks(title: str, *statuses: str) -> Json:
    check = structure(
        {
            "status": one_of("CheckStatus", ("ok", "warning", "failed")),
            "reason": STRING | {"description": "Why the check failed."},
            "detail": STRING,
            "warnings": array(STRING, description="Warnings: works, but should be corrected."),
        },
        optional=("reason", "detail", "warnings"),
        title="Check",
    )
    return structure(
        {
            "status": one_of(f"{title}Status", statuses),
            "worker": STRING | {"description": "The unique name of the process."},
            "checks": {"type": "object", "additionalProperties": check},
        },
        title=title,
    )


_NODES = structure(
    {
        "id": STRING | {"description": "Of this run of the node."},
        "host": STRING,
        "port": INTEGER,
        "version": STRING,
        "configured_workers": INTEGER,
        "workers": array(
            structure(
                {
                    "number": INTEGER | {"description": "Among the workers of the node, from 0."},
                    "pid": INTEGER,
                    "started_at": TIMESTAMP,
                    "reported_at": TIMESTAMP,
                    "log_position": INTEGER | {"description": "The last entry of the internal log that it knows."},
                    "connections": INTEGER | {"description": "Open connections."},
                    "streams": INTEGER | {"description": "Open streams."},
                    "requests_per_second": {"type": "number", "description": "Since its report before."},
                },
                title="Worker",
            )
        ),
    },
    title="Node",
)


PATHS: Json = {
    "/rights": {
        "get": operation(
            SETTINGS,
            "Show what the caller may do",
            {
                200: answer(
                    "Rights to the broker, and to what was named, and each operation on them with what refuses it "
                    "now, if anything does. Other features, and the owners of single events, may still "
                    "refuse a request.",
                    structure(
                        {
                            "subject": STRING,
                            "broker": array(_BROKER_RIGHT),
                            "event_type": array(_EVENT_TYPE_RIGHT),
                            "subscription": array(_SUBSCRIPTION_RIGHT),
                            "operations": {"type": "object", "additionalProperties": _OUTCOME},
                        },
                        optional=("event_type", "subscription"),
                        title="Rights",
                    ),
                    {
                        "subject": "jane",
                        "broker": ["READ", "HISTORY"],
                        "event_type": ["READ", "ADMIN"],
                        "operations": {
                            "GET /event-types/{name}/events": "allowed",
                            "POST /event-types/{name}/events": "blacklist",
                            "POST /settings/features": "right",
                        },
                    },
                )
            },
            parameters=[
                query("event_type", "Also the rights to this event type.", example="order.created"),
                query("subscription_id", "Also the rights to this subscription.", example=_SUBSCRIPTION_ID),
            ],
            problems=(404,),
        ),
    },
    "/settings/admins": {
        "get": operation(
            SETTINGS,
            "List administrators",
            {200: answer("Who administers the broker.", schema("Administrators"), _ADMINS)},
            problems=(403,),
        ),
        "post": operation(
            SETTINGS,
            "Name administrators",
            {200: answer("Who administers the broker from now on.", schema("Administrators"), _ADMINS)},
            description="The administrator of the broker's configuration remains one.",
            body=body(schema("SubmittedAdmins"), _ADMINS),
            problems=(403, 422),
        ),
    },
    "/settings/blacklist": {
        "get": operation(
            SETTINGS,
            "List what is blocked",
            {
                200: answer(
                    "Applications and event types.",
                    schema("Blacklist"),
                    {"producers": {"event_types": [], "apps": []}, "consumers": _BLOCKED},
                )
            },
            problems=(403,),
        ),
    },
    "/settings/blacklist/{blacklist_type}/{name}": {
        "put": operation(
            SETTINGS,
            "Block an application or event type",
            {204: answer("It is blocked.")},
            parameters=_BLACKLIST_ENTRY,
            problems=(403,),
        ),
        "delete": operation(
            SETTINGS,
            "Unblock an application or event type",
            {204: answer("It is not blocked.")},
            parameters=_BLACKLIST_ENTRY,
            problems=(403,),
        ),
    },
    "/settings/features": {
        "get": operation(
            SETTINGS,
            "List features",
            {
                200: answer(
                    "All features.",
                    structure({"items": array(schema("FeatureSwitch"))}, title="Features"),
                    {"items": [_FEATURE]},
                )
            },
            problems=(403,),
        ),
        "post": operation(
            SETTINGS,
            "Switch a feature",
            {204: answer("The feature is switched.")},
            body=body(schema("SubmittedFeature"), _FEATURE),
            problems=(403,),
        ),
    },
    "/storages": {
        "get": operation(
            STORAGES,
            "List storages",
            {200: answer("The storages by id.", array(schema("Storage")), [_STORAGE])},
            problems=(403,),
        ),
        "post": operation(
            STORAGES,
            "Add a storage",
            {201: answer("The storage can be used.", schema("Storage"), _STORAGE | {"id": "second"})},
            body=body(schema("SubmittedStorage"), {"id": "second", "storage_type": "embedded"}),
            problems={403: "", 409: "There is a storage of this id.", 422: ""},
        ),
    },
    "/storages/default/{storage_id}": {
        "put": operation(
            STORAGES,
            "Choose the default storage",
            {200: answer("New event types begin in this storage.", schema("Storage"), _STORAGE)},
            parameters=[_STORAGE_ID],
            problems=(403, 404),
        ),
    },
    "/storages/{storage_id}": {
        "get": operation(
            STORAGES,
            "Show a storage",
            {200: answer("The storage.", schema("Storage"), _STORAGE)},
            parameters=[_STORAGE_ID],
            problems=(403, 404),
        ),
        "delete": operation(
            STORAGES,
            "Delete a storage",
            {204: answer("The storage is gone.")},
            parameters=[_STORAGE_ID | {"example": "second"}],
            problems={400: "The request can't be read, or the storage is still used.", 403: "", 404: ""},
        ),
    },
    "/nodes": {
        "get": operation(
            OPERATING,
            "List nodes",
            {
                200: answer(
                    "The nodes with their worker processes, by host name and port.",
                    structure({"items": array(_NODES)}, title="Nodes"),
                    {"items": [_NODE]},
                    headers=("Cache-Control",),
                )
            },
            description="Every worker reports every ten seconds. Those that have not for 30 seconds are left out, so a "
            "node with fewer `workers` than `configured_workers` lacks some.",
            problems=(403,),
        ),
    },
    "/metrics": {
        "get": operation(
            OPERATING,
            "Show metrics",
            {
                200: also(
                    also(
                        answer(
                            "All metrics of the node, each member called like a series of Prometheus: "
                            '`name{label="value"}`. Clients that name `text/plain` or `application/openmetrics-text` '
                            "in `Accept` get Prometheus' text format or OpenMetrics.",
                            _METRICS,
                            headers=("Cache-Control",),
                        ),
                        "text/plain; version=0.0.4; charset=utf-8",
                    ),
                    "application/openmetrics-text; version=1.0.0; charset=utf-8",
                )
            },
            problems=(406,),
        ),
    },
    "/metrics/history": {
        "get": operation(
            OPERATING,
            "Show the metrics of the last hour",
            {
                200: answer(
                    "Series of the node, of all its worker processes together, by name. Rates are per second. Series "
                    "that were zero all the time may be missing.",
                    structure(
                        {
                            "step": INTEGER | {"description": "Seconds between two values."},
                            "times": array(TIMESTAMP, description="Of the values, oldest first."),
                            "series": array(
                                structure(
                                    {
                                        "name": one_of("MetricName", NAMES),
                                        "labels": {"type": "object", "additionalProperties": STRING},
                                        "values": array({"type": ["number", "null"]}),
                                    },
                                    title="MetricSeries",
                                )
                            ),
                            "matched": INTEGER | {"description": "How many series there are, with those left out."},
                        },
                        title="MetricsHistory",
                    ),
                    _HISTORY,
                    headers=("Cache-Control",),
                )
            },
            description="A sample is taken every ten seconds. With a larger `step` a value is the mean of rates, and "
            "the maximum of others: " + "; ".join(f"`{name}`: {text}" for name, (_, text) in NAMES.items()) + ".",
            parameters=[
                query(
                    "name",
                    "Names of series, separated by commas.",
                    array(one_of("MetricName", NAMES)),
                    ["published_events"],
                ),
                query("event_type", "Only series of these event types.", array(STRING), ["order.created"]),
                query("subscription", "Only series of these subscriptions.", array(STRING)),
                query("total", "Only what parts amount to, or only these parts; both where absent.", BOOLEAN),
                query("since", "Only values from this time on.", TIMESTAMP, "2026-11-20T10:00:00Z"),
                query("step", "Seconds of a value.", INTEGER | {"minimum": 10, "maximum": 3600, "default": 10}, 60),
                query(
                    "order",
                    "Which come first: by name, or by the largest last value.",
                    one_of("SeriesOrder", ("name", "largest")) | {"default": "name"},
                ),
                query(
                    "limit", "How many series are shown.", INTEGER | {"minimum": 1, "maximum": 1000, "default": 100}, 20
                ),
            ],
        ),
    },
    "/health": {
        "get": operation(
            OPERATING,
            "Liveness check",
            {200: answer("It is alive.", STRING, "OK", media="text/plain; charset=utf-8")},
        ),
    },
    "/livez": {
        "get": operation(
            OPERATING,
            "Check the background jobs of the process",
            {
                200: answer("It is alive.", _checks("Liveness", "ok"), _LIVE, headers=("Cache-Control",)),
                503: or_problem(
                    answer(
                        "It is not alive; a restart may help.",
                        _checks("NoLiveness", "failed"),
                        _HANGING,
                        headers=("Cache-Control",),
                    )
                ),
            },
        ),
    },
    "/readyz": {
        "get": operation(
            OPERATING,
            "Readiness check",
            {
                200: answer("It is ready.", _checks("Readiness", "ok"), _READY, headers=("Cache-Control",)),
                503: or_problem(
                    answer(
                        "Not ready, or shutting down.",
                        _checks("NoReadiness", "failed", "stopping"),
                        _NOT_READY,
                        headers=("Cache-Control",),
                    )
                ),
            },
        ),
    },
    "/version": {
        "get": operation(
            OPERATING,
            "Show the version",
            {
                200: answer(
                    "The version of the broker.",
                    structure(
                        {
                            "version": STRING,
                            "scm_source": {
                                "type": ["object", "null"],
                                "description": "Null: the broker does not know it.",
                            },
                        },
                        title="Version",
                    ),
                )
            },
        ),
    },
    "/openapi.json": {
        "get": operation(
            OPERATING,
            "Show the description of the API",
            {200: answer("This document.", {"type": "object"})},
        ),
    },
    "/docs": {
        "get": operation(
            OPERATING,
            "Read the description of the API",
            {
                200: answer(
                    "This document as a page to read.",
                    STRING,
                    media="text/html; charset=utf-8",
                    headers=("Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy"),
                )
            },
        ),
    },
}
