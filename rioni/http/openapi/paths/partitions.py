"""OpenAPI operations of partitions and of cursor arithmetic."""

from rioni.http.bodies import body_schemas
from rioni.http.openapi import notes
from rioni.http.openapi.builders import NAME, Json, answer, array, body, operation, path, query, schema
from rioni.http.openapi.notes import described


PARTITIONS = "Partitions and cursors"

_SHIFTS = described(body_schemas.CURSOR_LIST.schema, notes.CURSOR)
_PAIRS = described(body_schemas.CURSOR_PAIRS.schema, notes.CURSOR)
_BEGIN = {"partition": "0", "offset": "BEGIN"}
_OLDEST, _TENTH = "001-0001-000000000000000000", "001-0001-000000000000000009"
_PARTITION = {"partition": "0", "oldest_available_offset": _OLDEST, "newest_available_offset": _TENTH}

PATHS: Json = {
    "/event-types/{name}/partitions": {
        "get": operation(
            PARTITIONS,
            "List partitions",
            {
                200: answer(
                    "The partitions; those that were asked about come last.", array(schema("Partition")), [_PARTITION]
                )
            },
            parameters=[
                NAME,
                query(
                    "cursors",
                    "A JSON array of cursors: how many events follow each of them?",
                    example='[{"partition": "0", "offset": "BEGIN"}]',
                ),
            ],
            problems=(403, 404, 422),
        ),
    },
    "/event-types/{name}/partitions/{partition}": {
        "get": operation(
            PARTITIONS,
            "Show a partition",
            {200: answer("The partition.", schema("Partition"), _PARTITION)},
            parameters=[
                NAME,
                path("partition", "The id of the partition.", "0"),
                query("consumed_offset", "An offset: how many events follow it?", example="BEGIN"),
            ],
            problems=(403, 404, 422),
        ),
    },
    "/event-types/{name}/cursor-distances": {
        "post": operation(
            PARTITIONS,
            "Measure the distance of cursors",
            {
                200: answer(
                    "Number of events between the two cursors of each pair.",
                    array(schema("Distance")),
                    [{"initial_cursor": _BEGIN, "final_cursor": {"partition": "0", "offset": _TENTH}, "distance": 10}],
                )
            },
            parameters=[NAME],
            body=body(
                _PAIRS,
                [{"initial_cursor": _BEGIN, "final_cursor": {"partition": "0", "offset": _TENTH}}],
            ),
            problems=(403, 404, 422),
        ),
    },
    "/event-types/{name}/shifted-cursors": {
        "post": operation(
            PARTITIONS,
            "Shift cursors",
            {
                200: answer(
                    "The cursors, moved forward or back by that number of events.",
                    array(schema("ShiftedCursor")),
                    [{"partition": "0", "offset": _TENTH}],
                )
            },
            parameters=[NAME],
            body=body(_SHIFTS, [_BEGIN | {"shift": 10}]),
            problems=(403, 404, 422),
        ),
    },
    "/event-types/{name}/cursors-lag": {
        "post": operation(
            PARTITIONS,
            "Measure the lag of cursors",
            {
                200: answer(
                    "How many events follow each cursor.",
                    array(schema("PartitionLag")),
                    [_PARTITION | {"unconsumed_events": 10}],
                )
            },
            parameters=[NAME],
            body=body(_SHIFTS, [_BEGIN]),
            problems=(403, 404, 422),
        ),
    },
}
