"""OpenAPI operations of partitions and their number, of timelines, and of cursor arithmetic."""

from rioni.http.bodies import body_schemas
from rioni.http.openapi.builders import Json, all_of, answer, body, operation, query
from rioni.wire import event_types, events


# --- OpenAPI operations of timelines and of the number of partitions ---

_TIMELINE = {
    "id": "5d8f0c5e-6c53-4f0b-8c2e-0d6a3a1b7f10",
    "event_type": "order.created",
    "order": 1,
    "storage_id": "default",
    "topic": "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11",
    "created_at": "2026-11-20T10:00:00.000Z",
    "switched_at": "2026-11-20T10:00:00.000Z",
    "cleaned_up_at": None,
    "latest_position": None,
}
_COUNT: Json = {
    "description": "Only more are possible. Streams of subscriptions end, so that their clients come back for the new "
    "partitions; low-level streams have to ask for them. Repeat the request until it succeeds.",
    "body": body(body_schemas.PARTITION_COUNT, {"partition_count": 3}),
    "problems": {
        422: "The number is below the present one or above the limit, or missing.",
        501: "",
    },
}

_TIMELINES: Json = {
    "PUT /event-types/{name}/partition-count": operation(
        "Add partitions", {204: answer("The event type has this number of partitions.")}, **_COUNT
    ),
    "POST /event-types/{name}/partition-count": operation(
        "Add partitions by POST", {204: answer("The event type has this number of partitions.")}, **_COUNT
    ),
    "GET /event-types/{name}/timelines": operation(
        "List timelines",
        answer("All timelines by order, also those whose events are gone.", all_of(event_types.Timeline), [_TIMELINE]),
    ),
    "POST /event-types/{name}/timelines": operation(
        "Begin a timeline",
        {201: answer("Events are stored in a new topic of the storage.")},
        description="Publishers wait for the moment that this takes; consumers notice nothing.",
        body=body(body_schemas.TIMELINE, {"storage_id": "default"}),
        problems={409: "A timeline is being created already."},
    ),
}


# --- OpenAPI operations of partitions and of cursor arithmetic ---

_BEGIN = {"partition": "0", "offset": "BEGIN"}
_OLDEST, _TENTH = "001-0001-000000000000000000", "001-0001-000000000000000009"
_PARTITION = {"partition": "0", "oldest_available_offset": _OLDEST, "newest_available_offset": _TENTH}

_PARTITIONS: Json = {
    "GET /event-types/{name}/partitions": operation(
        "List partitions",
        answer("The partitions; those that were asked about come last.", all_of(event_types.Partition), [_PARTITION]),
        parameters=[
            query(
                "cursors",
                "A JSON array of cursors: how many events follow each of them?",
                example='[{"partition": "0", "offset": "BEGIN"}]',
            )
        ],
        problems=(422,),
    ),
    "GET /event-types/{name}/partitions/{partition}": operation(
        "Show a partition",
        answer("The partition.", event_types.Partition, _PARTITION),
        parameters=[query("consumed_offset", "An offset: how many events follow it?", example="BEGIN")],
        problems=(422,),
    ),
    "POST /event-types/{name}/cursor-distances": operation(
        "Measure the distance of cursors",
        answer(
            "Number of events between the two cursors of each pair.",
            all_of(events.Distance),
            [{"initial_cursor": _BEGIN, "final_cursor": {"partition": "0", "offset": _TENTH}, "distance": 10}],
        ),
        body=body(
            body_schemas.PAIRS, [{"initial_cursor": _BEGIN, "final_cursor": {"partition": "0", "offset": _TENTH}}]
        ),
    ),
    "POST /event-types/{name}/shifted-cursors": operation(
        "Shift cursors",
        answer(
            "The cursors, moved forward or back by that number of events.",
            all_of(events.ShiftedCursor),
            [{"partition": "0", "offset": _TENTH}],
        ),
        body=body(body_schemas.SHIFTS, [_BEGIN | {"shift": 10}]),
    ),
    "POST /event-types/{name}/cursors-lag": operation(
        "Measure the lag of cursors",
        answer(
            "How many events follow each cursor.",
            all_of(event_types.LaggingPartition),
            [_PARTITION | {"unconsumed_events": 10}],
        ),
        body=body(body_schemas.SHIFTS, [_BEGIN]),
    ),
}

OPERATIONS: Json = {"Timelines": _TIMELINES, "Partitions and cursors": _PARTITIONS}
