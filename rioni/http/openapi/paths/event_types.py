"""OpenAPI operations of event types, their producers and their consumers."""

from rioni.domain.system.client_activity import RETENTION_DAYS
from rioni.http.bodies import body_schemas
from rioni.http.openapi.builders import (
    FLAG,
    INTEGER,
    MAY_BE_EMPTY,
    PAGE,
    STRING,
    Json,
    all_of,
    answer,
    array,
    body,
    header,
    listed,
    literal,
    operation,
    query,
)
from rioni.http.openapi.paths.schemas import SCHEMA, SUBMITTED_SCHEMA, TIME
from rioni.wire import event_types


_SUBMITTED = {
    "name": "order.created",
    "owning_application": "shop",
    "category": "business",
    "enrichment_strategies": ["metadata_enrichment"],
    "partition_strategy": "hash",
    "partition_key_fields": ["order_id"],
    "schema": SUBMITTED_SCHEMA,
}
_EVENT_TYPE = {
    **_SUBMITTED,
    "cleanup_policy": "delete",
    "ordering_key_fields": [],
    "ordering_instance_ids": [],
    "schema": SCHEMA,
    "default_statistic": None,
    "options": {"retention_time": 172_800_000},
    "authorization": None,
    "annotations": {},
    "labels": {},
    "compatibility_mode": "forward",
    "updated_at": TIME,
    "created_at": TIME,
}
_IF_NONE_MATCH = header("If-None-Match", "The `ETag` of the state that the client has.", example='"1f"')
_EXPLICIT = "must list exactly this `data_type:value`; wildcards do not count."
_KEYS = "A key, or `key:value`, that they must have; may be given more than once."
_KEY_LISTS = f"{_KEYS[:-1]}, or hold a list separated by commas."
_FILTERS = (
    query("name", "Only those of this name; `*` matches any text.", example="order.*"),
    query("owning_application", "Only those of this application.", example="shop"),
    query("category", "Only those of this category.", literal("Category"), "business"),
    query("cleanup_policy", "Only those of this clean-up policy.", literal("CleanupPolicy"), "delete"),
    query("admin", f"Their admins {_EXPLICIT}", example="user:jane"),
    query("reader", f"Their readers {_EXPLICIT}", example="service:billing"),
    query("writer", f"Their writers {_EXPLICIT}", example="service:shop"),
    query("label", _KEY_LISTS, array(STRING), ["team:orders"]),
    query("annotation", _KEYS, array(STRING), ["nakadi.io/internal-event-type"]),
    query(
        "unused_days",
        "Only those that nobody has published to, or read, for this many days, and that are older. Event types to "
        "which the broker itself publishes count as used. Not to be combined with `as_of`.",
        INTEGER | {"minimum": 1, "maximum": RETENTION_DAYS},
        30,
    ),
)
_CONSUMERS = {
    "subscriptions": [
        {
            "id": "038fc871-1d2c-4e2e-aa29-1579e8f2e71f",
            "owning_application": "warehouse",
            "consumer_group": "default",
            "streams": 1,
            "partitions": [{"partition": "0", "unconsumed_events": 12, "consumer_lag_seconds": 3}],
            "clients": [{"client": "warehouse", "last_streamed_at": TIME, "last_committed_at": TIME}],
            "unconsumed_events": 12,
            "consumer_lag_seconds": 3,
        }
    ],
    "low_level": [{"client": "billing", "last_read_at": TIME, "since": TIME, "events": 42}],
}
_COUNTED = {
    "total": 3,
    "owning_application": {"values": [{"value": "shop", "count": 2}, {"value": "bank", "count": 1}], "distinct": 2},
    "category": {"values": [{"value": "business", "count": 3}], "distinct": 1},
    "cleanup_policy": {"values": [{"value": "delete", "count": 3}], "distinct": 1},
    "label": {"values": [{"value": "team:orders", "count": 2}], "distinct": 1},
    "unused": {"days": 30, "count": 1},
}
_STRATEGIES = array(STRING)

_EVENT_TYPES: Json = {
    "GET /event-types": operation(
        "List event types",
        {
            200: answer(
                "The event types by name. Where a page was asked for, a header `Link` names its neighbours, as far "
                "as there are any.",
                all_of(event_types.ShownEventType),
                [_EVENT_TYPE],
                headers=("ETag", "Link"),
            ),
            304: answer("The list is unchanged.", headers=("ETag",)),
        },
        description="All of them, unless there is a `limit` or an `offset`.",
        parameters=[*_FILTERS, *PAGE, _IF_NONE_MATCH],
    ),
    "POST /event-types": operation(
        "Create an event type",
        {201: answer("The event type exists.", event_types.ShownEventType, _EVENT_TYPE, headers=("ETag", "Warning"))},
        description="Its first schema has the version 1.0.0, and it has as many partitions as `default_statistic` "
        "asks for, at least one.",
        body=body(body_schemas.EVENT_TYPE, _SUBMITTED),
        problems={
            403: "The authorization section may not be used by this client.",
            409: "There is an event type of this name.",
            501: "The creation of event types is switched off.",
        },
    ),
    "GET /event-type-facets": operation(
        "Count event types",
        answer(
            "The number of event types that match all filters, also by the values that they have.",
            event_types.EventTypeFacets,
            _COUNTED,
        ),
        description="Filters are those of the list. `unused` is about `unused_days`, or 30 days.",
        parameters=[
            *_FILTERS,
            query(
                "limit",
                "How many values of a facet are listed.",
                INTEGER | {"minimum": 1, "maximum": 1000, "default": 100},
                20,
            ),
        ],
    ),
    "GET /event-types/{name}": operation(
        "Show an event type",
        {
            200: answer("The event type.", event_types.ShownEventType, _EVENT_TYPE, headers=("ETag",)),
            304: answer("The event type is unchanged.", headers=("ETag",)),
        },
        parameters=[_IF_NONE_MATCH],
    ),
    "PUT /event-types/{name}": operation(
        "Change an event type",
        answer(
            "It is changed. The body is empty, unless the feature `return_body_on_create_update_event_type` is on.",
            event_types.ShownEventType,
            _EVENT_TYPE,
            headers=("ETag", "Warning"),
        )
        | {MAY_BE_EMPTY: True},
        description="The body is the whole event type, as `GET` shows it. Members that may be left out keep their "
        "values then. A changed schema becomes a new version if the compatibility mode allows that.",
        parameters=[header("If-Match", "The `ETag` of the state that the change was made of.", example='"1f"')],
        body=body(body_schemas.EVENT_TYPE, _SUBMITTED),
        problems={412: "Modified concurrently: the ETag does not match."},
    ),
    "DELETE /event-types/{name}": operation(
        "Delete an event type",
        answer("The event type is gone, with its schemas and events."),
        problems={409: "There are subscriptions to it."},
    ),
    "GET /event-types/{name}/producers": operation(
        "List the producers of an event type",
        answer(
            "The clients that published to it, or deleted from it, by name.",
            listed("Producers", event_types.ProducingClient),
            {"items": [{"client": "shop", "last_published_at": TIME, "since": TIME, "events": 4711}]},
        ),
        description="Clients not seen for 90 days are removed. Activity of the last second may be missing.",
    ),
    "GET /event-types/{name}/consumers": operation(
        "List the consumers of an event type",
        answer("The subscriptions to it, and the clients that read it without one.", event_types.Consumers, _CONSUMERS),
        description="Clients not seen for 90 days are removed. Activity of the last second may be missing.",
        parameters=[query("show_time_lag", "Show the lag in seconds, too.", FLAG, example=True)],
    ),
    "GET /registry/enrichment-strategies": operation(
        "List enrichment strategies", answer("Their names.", _STRATEGIES, ["metadata_enrichment"])
    ),
    "GET /registry/partition-strategies": operation(
        "List partition strategies", answer("Their names.", _STRATEGIES, ["hash", "user_defined", "random"])
    ),
}


OPERATIONS: Json = {"Event types": _EVENT_TYPES}
