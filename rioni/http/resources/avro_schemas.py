"""`/avro-schemas/{name}/versions`: the schemas of binary batches (reference schemas#endpoints)."""

from typing import Any

import falcon
import orjson

from rioni.domain.avro.batches import BATCH_SCHEMAS, BatchSchema, batch_schema
from rioni.domain.errors import NotFound


class AvroSchemasResource:
    """All versions of the schema of a batch."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """List the versions, oldest first."""
        if (versions := BATCH_SCHEMAS.get(name)) is None:
            raise NotFound(f"Avro schema not found for: {name[:100]}. There are {', '.join(BATCH_SCHEMAS)}")
        resp.data = orjson.dumps({"items": [_shown(schema) for schema in versions.values()]})


class AvroSchemaResource:
    """One version."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response, name: str, version: str) -> None:
        """Show a version."""
        resp.data = orjson.dumps(_shown(batch_schema(name, version)))


def _shown(schema: BatchSchema) -> dict[str, Any]:
    return {"avro_schema": schema.document, "version": schema.version}
