"""OpenAPI operations of schemas, those of event types and those of Avro batches."""

from rioni.http.bodies import body_schemas
from rioni.http.openapi.builders import FLAG, NAME, PAGE, Json, answer, body, listed, operation, paged, path, query
from rioni.wire import event_types


SCHEMAS = "Schemas"

TIME = "2026-11-20T10:00:00.000Z"
SUBMITTED_SCHEMA = {
    "type": "json_schema",
    "schema": '{"properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}',
}
SCHEMA = {**SUBMITTED_SCHEMA, "version": "1.0.0", "created_at": TIME}
_VERSION = path("version", "A version, or `latest`.", "latest")

PATHS: Json = {
    "/event-types/{name}/schemas": {
        "get": operation(
            SCHEMAS,
            "List the versions of a schema",
            {
                200: answer(
                    "One page, newest first.",
                    paged("SchemaPage", event_types.Schema),
                    {"items": [SCHEMA], "_links": {}},
                )
            },
            parameters=[NAME, *PAGE],
            problems=(404,),
        ),
        "post": operation(
            SCHEMAS,
            "Add a version of a schema",
            {
                200: answer("The schema was known.", event_types.Schema, SCHEMA),
                201: answer("The new version.", event_types.Schema, SCHEMA),
            },
            parameters=[
                NAME,
                query(
                    "fetch",
                    "Only look for the version that is the same, and change nothing.",
                    FLAG,
                    example=True,
                ),
            ],
            body=body(body_schemas.SCHEMA, SUBMITTED_SCHEMA),
            problems={403: "", 404: "There is no such event type or, with `fetch`, no such schema.", 422: ""},
        ),
    },
    "/event-types/{name}/schemas/{version}": {
        "get": operation(
            SCHEMAS,
            "Show a version of a schema",
            {200: answer("The version.", event_types.Schema, SCHEMA)},
            parameters=[NAME, _VERSION],
            problems=(404,),
        ),
    },
    "/event-types/{name}/schemas/{version}/compatibility-check": {
        "post": operation(
            SCHEMAS,
            "Check whether a schema is compatible",
            {
                200: answer(
                    "Whether the schema could follow the version, and if not why.",
                    event_types.Compatibility,
                    {"compatible": True, "compatibility_mode": "forward", "validated_against_version": "1.0.0"},
                )
            },
            parameters=[NAME, _VERSION],
            body=body(body_schemas.SCHEMA, SUBMITTED_SCHEMA, description="Nothing is changed."),
            problems=(404, 422),
        ),
    },
    "/avro-schemas/{name}/versions": {
        "get": operation(
            SCHEMAS,
            "List the versions of a batch's Avro schema",
            {
                200: answer(
                    "The versions, oldest first.",
                    listed("BatchAvroSchemas", event_types.AvroSchema),
                )
            },
            description="How batches of Avro events are published and consumed.",
            parameters=[path("name", "`batch.publishing` or `batch.consumption`.", "batch.publishing")],
            problems=(404,),
        ),
    },
    "/avro-schemas/{name}/versions/{version}": {
        "get": operation(
            SCHEMAS,
            "Show a version of a batch's Avro schema",
            {200: answer("The version.", event_types.AvroSchema)},
            parameters=[
                path("name", "`batch.publishing` or `batch.consumption`.", "batch.publishing"),
                path("version", "The number of the version.", "1"),
            ],
            problems=(404,),
        ),
    },
}
