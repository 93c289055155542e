"""OpenAPI operations of timelines and of the number of partitions."""

from rioni.http.openapi.builders import NAME, Json, answer, array, body, operation, schema


TIMELINES = "Timelines"

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
    "parameters": [NAME],
    "body": body(schema("SubmittedPartitionCount"), {"partition_count": 3}),
    "problems": {
        403: "",
        404: "",
        422: "The number is below the present one or above the limit, or missing.",
        501: "",
        503: "",
    },
}

PATHS: Json = {
    "/event-types/{name}/partition-count": {
        "put": operation(TIMELINES, "Add partitions", {204: answer("There are so many partitions.")}, **_COUNT),
        "post": operation(
            TIMELINES, "Add partitions by POST", {204: answer("There are so many partitions.")}, **_COUNT
        ),
    },
    "/event-types/{name}/timelines": {
        "get": operation(
            TIMELINES,
            "List timelines",
            {
                200: answer(
                    "All timelines by order, also those whose events are gone.", array(schema("Timeline")), [_TIMELINE]
                )
            },
            parameters=[NAME],
            problems=(403, 404),
        ),
        "post": operation(
            TIMELINES,
            "Begin a timeline",
            {201: answer("Events are stored in a new topic of the storage.")},
            description="Publishers wait for the moment that this takes; consumers notice nothing.",
            parameters=[NAME],
            body=body(schema("SubmittedTimeline"), {"storage_id": "default"}),
            problems={403: "", 404: "", 409: "A timeline is being created already.", 422: "", 503: ""},
        ),
    },
}
