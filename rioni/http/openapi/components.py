"""OpenAPI components that many operations share: schemas, headers, parameters, problems.

Responses are described by the structs that the broker encodes, requests by `body_schemas`; here both get the
descriptions, literals and defaults that these can't express.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rioni.domain.event_types import rules
from rioni.domain.event_types.event_type import EventType
from rioni.domain.publishing.results import ItemResult
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.settings import Admins
from rioni.http.bodies import body_schemas
from rioni.http.openapi import notes
from rioni.http.openapi.builders import (
    BOOLEAN,
    INTEGER,
    PROBLEMS,
    STRING,
    TIMESTAMP,
    Json,
    answer,
    array,
    one_of,
    problem_name,
    schema,
    structure,
)
from rioni.http.openapi.notes import Notes, described
from rioni.http.problems import PROBLEM_JSON


_ANSWERED: Mapping[str, Notes] = {
    "EventType": notes.EVENT_TYPE,
    "Schema": notes.SCHEMA,
    "Statistic": notes.STATISTIC,
    "Options": notes.OPTIONS,
    "EventOwnerSelector": notes.OWNER_SELECTOR,
    "EventTypeAuthorization": notes.AUTHORIZATION,
    "SubscriptionAuthorization": notes.AUTHORIZATION,
    "Attribute": notes.ATTRIBUTE,
    "Subscription": notes.SUBSCRIPTION,
    "InitialCursor": notes.CURSOR,
    "ItemResult": notes.ITEM_RESULT,
}


_NAMES = {"Schema": "EventTypeSchema", "Admins": "Administrators"}
"""Structs whose names would meet others in generated clients: Pydantic's `Schema`, and a member `admins`."""
_LAGS = ("unconsumed_events", "consumer_lag_seconds")
_UNAVAILABLE = {
    "event_type": "Of a cursor that can't be read from.",
    "partition": "Of the same cursor.",
    "oldest_available_offset": "Of the first event that can be read there.",
    "newest_available_offset": "Of the last one.",
}
"""The members of a problem that describe a cursor that has expired, or does not exist yet, for programs."""


def _request(shape: body_schemas.Shape, words: Notes, required: Iterable[str] = (), description: str = "") -> Json:
    """The schema of a request body: the shape that checks its types, with descriptions and required members."""
    noted = described(shape.schema, words)
    noted |= {"required": [*required]} if required else {}
    return noted | ({"description": description} if description else {})


_TIMELINE: Json = {
    "id": STRING,
    "event_type": STRING,
    "order": INTEGER,
    "storage_id": STRING,
    "topic": STRING,
    "created_at": TIMESTAMP,
    "switched_at": TIMESTAMP,
    "cleaned_up_at": TIMESTAMP | {"type": ["string", "null"]},
    "latest_position": structure({"offsets": array(INTEGER)}, title="LatestPosition") | {"type": ["object", "null"]},
}


def schemas() -> Json:
    """All schemas by name, except those within others that have a title."""
    return _answered() | _accepted() | _composed()


def _answered() -> Json:
    structs = (EventType, Subscription, Admins, ItemResult)
    _, written = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    answered = {
        _NAMES.get(name, name): described(_renamed(plain), _ANSWERED.get(name, {})) for name, plain in written.items()
    }
    status = array(schema("Assignments"), description="With `show_status` only.")
    listed = answered["Subscription"] | {"properties": answered["Subscription"]["properties"] | {"status": status}}
    return answered | {"ListedSubscription": listed}


def _renamed(part: Any) -> Any:
    match part:
        case {"$ref": str(target)}:
            name = target.rpartition("/")[2]
            return part | schema(_NAMES.get(name, name))
        case dict():
            return {key: _renamed(value) for key, value in part.items()}
        case list():
            return [_renamed(each) for each in part]
    return part


def _accepted() -> Json:
    every_item = f"Each item has {', '.join(body_schemas.CURSOR_MEMBERS)}."
    every_place = (
        "Each item has either an offset, which may be `END` as well, or a timestamp. Where that means something in "
        "every partition, `partition` or both `event_type` and `partition` may be left out."
    )
    return {
        "SubmittedEventType": _request(
            body_schemas.EVENT_TYPE, notes.EVENT_TYPE, ("name", "owning_application", "category", "schema")
        ),
        "SubmittedSchema": _request(body_schemas.SUBMITTED_SCHEMA, notes.SCHEMA, ("schema",)),
        "SubmittedSubscription": _request(
            body_schemas.SUBSCRIPTION, notes.SUBSCRIPTION, ("owning_application", "event_types")
        ),
        "SubmittedCursors": _request(body_schemas.CURSORS, {}, ("items",), every_item),
        "SubmittedFailures": _request(
            body_schemas.FAILURES,
            {},
            ("items",),
            f"Each item has {', '.join(body_schemas.FAILURE_MEMBERS)}, which is text of 1 to "
            f"{body_schemas.REASON_CHARACTERS_MAX:,} characters.",
        ),
        "SubmittedPlaces": _request(body_schemas.NAMED_PLACES, notes.CURSOR, ("items",), every_place),
        "SubmittedAdmins": _request(body_schemas.ADMINS, notes.AUTHORIZATION),
        "SubmittedFeature": _request(body_schemas.FEATURE, notes.FEATURE, ("feature",)),
        "SubmittedTimeline": _request(body_schemas.TIMELINE, notes.TIMELINE, ("storage_id",)),
        "SubmittedPartitionCount": _request(body_schemas.PARTITION_COUNT, notes.PARTITION_COUNT, ("partition_count",)),
        "SubmittedRedrive": _request(
            body_schemas.REDRIVE, notes.REDRIVE, description="Which dead letters; all of them without members."
        ),
        "SubmittedFilterEvaluation": _request(
            body_schemas.FILTER_EVALUATION, {}, ("filter", "events"), "At most 20 events and 100 event types."
        ),
        "SubmittedStreamTicket": _request(body_schemas.STREAM_TICKET, notes.STREAM_TICKET, ("path",)),
        "SubmittedJob": _request(body_schemas.JOB, {}, ("kind", "name", "state"), "What it does now."),
        "SubmittedStorage": _request(body_schemas.STORAGE, notes.STORAGE, ("id", "storage_type")),
    }


def _composed() -> Json:
    offset = STRING | {"examples": ["001-0001-000000000000000542"]}
    partition = {
        "partition": STRING,
        "oldest_available_offset": offset,
        "newest_available_offset": offset,
        "unconsumed_events": INTEGER | {"description": "How many events follow the cursor that was asked about."},
    }
    cursor = {"partition": STRING, "offset": offset}
    counted = {
        "since": TIMESTAMP | {"description": "When the client was first seen."},
        "events": INTEGER | {"description": "How many there were since then."},
    }
    lagging = {"partition": STRING, "unconsumed_events": INTEGER, "consumer_lag_seconds": INTEGER}
    realm = {"realm": STRING | {"description": "In which the name is unique; absent where there is none."}}
    attending = {"client": STRING, **realm, "last_streamed_at": TIMESTAMP, "last_committed_at": TIMESTAMP}
    committed = {**cursor, "event_type": STRING, "cursor_token": STRING}
    named = structure(cursor | {"timestamp": STRING}, optional=("offset", "timestamp"), title="NamedCursor")
    blocked = structure({"event_types": array(STRING), "apps": array(STRING)}, title="Blocked")
    statistics = {
        "partition": STRING,
        "state": one_of("AssignmentState", ("unassigned", "reassigning", "assigned")),
        "unconsumed_events": INTEGER
        | {"description": "Absent until the subscription was first streamed, unless `show_initial_lag` is true."},
        "consumer_lag_seconds": INTEGER | {"description": "The age of the first unconsumed event, if asked for."},
        "stream_id": STRING | {"description": "The stream that reads the partition; empty if none does."},
        "assignment_type": one_of("AssignmentType", ("auto", "direct"))
        | {"description": "Whether the stream asked for the partition."},
        "cursor_error": STRING | {"description": "Why nothing can be said of the lag; absent where all is well."},
    }
    known_later = (*_LAGS, "assignment_type", "cursor_error")
    assigned = structure(statistics, optional=known_later, title="AssignedPartition")
    assignments = structure({"event_type": STRING, "partitions": array(assigned)})
    link = structure({"href": STRING}, title="Hyperlink")
    metadata = {"type": "object", "description": "At least `eid` and `occurred_at`; the broker adds the rest."}
    event: Json = {"type": "object", "properties": {"metadata": metadata}, "additionalProperties": True}
    batch = {"cursor": schema("Cursor"), "events": array(schema("Event")), "info": {"type": "object"}}
    storage = {"id": STRING, "storage_type": STRING, "default": BOOLEAN, "kafka_configuration": {"type": "object"}}
    return {
        "Problem": structure(
            {
                "type": STRING | {"description": "A URI for the kind of problem; absent for the usual ones."},
                "title": STRING | {"description": "The words for the status."},
                "status": INTEGER,
                "detail": STRING | {"description": "What is wrong, and often what to do."},
                "violations": array(structure({"field": STRING, "message": STRING}, title="Violation")),
                **{name: STRING | {"description": text} for name, text in _UNAVAILABLE.items()},
            },
            optional=("type", "detail", "violations", *_UNAVAILABLE),
            description="What every refusal answers (RFC 9457).",
        ),
        "Event": event,
        "Batch": structure(batch, optional=("events", "info"), description="One line of a stream."),
        "Cursor": structure(
            committed,
            optional=("event_type", "cursor_token"),
            description="The place of a batch's last event; streams of a subscription add the last two members.",
        ),
        "CommittedCursor": structure(committed),
        "CommitResult": structure(
            {"cursor": schema("CommittedCursor"), "result": one_of("CommitOutcome", ("committed", "outdated"))},
        ),
        "Producer": structure(
            {"client": STRING, **realm, "last_published_at": TIMESTAMP, **counted}, optional=("realm",)
        ),
        "Reader": structure({"client": STRING, **realm, "last_read_at": TIMESTAMP, **counted}, optional=("realm",)),
        "Consumer": structure(
            {
                "id": STRING | {"description": "Of the subscription."},
                "owning_application": STRING,
                "consumer_group": STRING,
                "streams": INTEGER | {"description": "How many there are now."},
                "partitions": array(structure(lagging, optional=_LAGS, title="ConsumedPartition")),
                "clients": array(
                    structure(
                        attending, optional=("realm", "last_streamed_at", "last_committed_at"), title="ConsumerClient"
                    )
                ),
                "unconsumed_events": INTEGER
                | {"description": "In all; before it is first streamed, all that it would begin with."},
                "consumer_lag_seconds": INTEGER
                | {"description": "The age of the oldest unconsumed event, if asked for; absent if it is unknown."},
            },
            optional=_LAGS,
        ),
        "Partition": structure(partition, optional=("unconsumed_events",)),
        "PartitionLag": structure(partition),
        "ShiftedCursor": structure(cursor),
        "Distance": structure({"initial_cursor": named, "final_cursor": named, "distance": INTEGER}),
        "Assignments": assignments,
        "Links": structure({"prev": link, "next": link}, optional=("prev", "next")),
        "Blacklist": structure({"producers": blocked, "consumers": blocked}),
        "FeatureSwitch": described(structure({"feature": STRING, "enabled": BOOLEAN}), notes.FEATURE),
        "Storage": described(structure(storage, optional=("kafka_configuration",)), notes.STORAGE),
        "Timeline": described(structure(_TIMELINE), notes.TIMELINE),
        "BatchAvroSchema": structure({"avro_schema": {"type": "object"}, "version": STRING}),
        "Compatibility": structure(
            {
                "compatible": BOOLEAN,
                "compatibility_mode": one_of("CompatibilityMode", rules.COMPATIBILITY_MODES),
                "validated_against_version": STRING,
                "error": STRING,
            },
            optional=("error",),
        ),
    }


def responses() -> Json:
    """A problem for each status."""
    return {
        problem_name(status): answer(text, schema("Problem"), media=PROBLEM_JSON) for status, text in PROBLEMS.items()
    }


HEADERS: Json = {
    "X-Flow-Id": {
        "description": "The flow id of the request, or a new one; it stands in the logs of the broker.",
        "required": True,
        "schema": STRING,
    },
    "span_ctx": {
        "description": "The span context of the request as a JSON object, empty if there is none.",
        "required": True,
        "schema": STRING,
    },
    "ETag": {"description": "Names this state of the resource.", "required": True, "schema": STRING},
    "Link": {"description": "The neighbours of the page, as RFC 8288 has it: `prev` and `next`.", "schema": STRING},
    "Warning": {
        "description": "What the client should know; absent if there is nothing, and with events that refuse a stream.",
        "schema": STRING,
    },
    "Location": {"description": "The path of the subscription.", "required": True, "schema": STRING},
    "Content-Location": {"description": "As `Location`.", "required": True, "schema": STRING},
    "X-Nakadi-StreamId": {
        "description": "The id of the stream, which commits name; absent with server-sent events that refuse one.",
        "schema": {"type": "string", "format": "uuid"},
    },
    "Content-Security-Policy": {"description": "What the page may load: nothing.", "required": True, "schema": STRING},
    "X-Content-Type-Options": {"description": "`nosniff`.", "required": True, "schema": STRING},
    "Referrer-Policy": {"description": "`no-referrer`.", "required": True, "schema": STRING},
    "Log-Position": {
        "description": "The position of the log that the answer is about; absent where none was asked for.",
        "schema": STRING,
    },
    "Cache-Control": {"description": "The answer is never kept.", "required": True, "schema": STRING},
}
PARAMETERS: Json = {
    "FlowId": {
        "name": "X-Flow-Id",
        "in": "header",
        "description": "Names the request in logs and in the metadata of its events: up to 200 printable characters.",
        "schema": STRING,
        "example": "checkout-4711",
    },
    "SpanContext": {
        "name": "span_ctx",
        "in": "header",
        "description": "The span that the request belongs to, as a JSON object of texts.",
        "schema": STRING,
        "example": '{"trace-id": "5a1b"}',
    },
    "ContentEncoding": {
        "name": "Content-Encoding",
        "in": "header",
        "description": "How the body is compressed, if it is.",
        "schema": one_of("ContentEncoding", ("gzip", "zstd")),
    },
}
SECURITY_SCHEMES: Json = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "Where the broker asks for one: the header `Authorization: Bearer …` with a token that one of "
        "its token sources accepts; see the manual on security.",
    },
}
