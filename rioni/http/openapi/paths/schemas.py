"""OpenAPI operations of schemas, those of event types and those of Avro batches."""

from rioni.http.bodies import body_schemas
from rioni.http.openapi.builders import FLAG, PAGE, Json, answer, body, listed, operation, paged, path, query
from rioni.wire import event_types


TIME = "2026-11-20T10:00:00.000Z"
SUBMITTED_SCHEMA = {
    "type": "json_schema",
    "schema": '{"properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}',
}
SCHEMA = {**SUBMITTED_SCHEMA, "version": "1.0.0", "created_at": TIME}

_SCHEMAS: Json = {
    "GET /event-types/{name}/schemas": operation(
        "List the versions of a schema",
        answer("One page, newest first.", paged("SchemaPage", event_types.Schema), {"items": [SCHEMA], "_links": {}}),
        parameters=[*PAGE],
    ),
    "POST /event-types/{name}/schemas": operation(
        "Add a version of a schema",
        {
            200: answer("The schema was known.", event_types.Schema, SCHEMA),
            201: answer("The new version.", event_types.Schema, SCHEMA),
        },
        parameters=[
            query("fetch", "Only look for the version that is the same, and change nothing.", FLAG, example=True)
        ],
        body=body(body_schemas.SCHEMA, SUBMITTED_SCHEMA),
        problems={404: "There is no such event type or, with `fetch`, no such schema."},
    ),
    "GET /event-types/{name}/schemas/{version}": operation(
        "Show a version of a schema", answer("The version.", event_types.Schema, SCHEMA)
    ),
    "POST /event-types/{name}/schemas/{version}/compatibility-check": operation(
        "Check whether a schema is compatible",
        answer(
            "Whether the schema could follow the version, and if not why.",
            event_types.Compatibility,
            {"compatible": True, "compatibility_mode": "forward", "validated_against_version": "1.0.0"},
        ),
        body=body(body_schemas.SCHEMA, SUBMITTED_SCHEMA, description="Nothing is changed."),
    ),
    "GET /avro-schemas/{name}/versions": operation(
        "List the versions of a batch's Avro schema",
        answer("The versions, oldest first.", listed("BatchAvroSchemas", event_types.AvroSchema)),
        description="How batches of Avro events are published and consumed.",
        parameters=[path("name", "`batch.publishing` or `batch.consumption`.", "batch.publishing")],
    ),
    "GET /avro-schemas/{name}/versions/{version}": operation(
        "Show a version of a batch's Avro schema",
        answer("The version.", event_types.AvroSchema),
        parameters=[
            path("name", "`batch.publishing` or `batch.consumption`.", "batch.publishing"),
            path("version", "The number of the version.", "1"),
        ],
    ),
}


OPERATIONS: Json = {"Schemas": _SCHEMAS}
