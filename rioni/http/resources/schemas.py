"""Schemas: versions of an event type's schema (reference schemas#endpoints), and the schemas of Avro batches."""

from http import HTTPStatus
from typing import Any

import falcon
import msgspec
import orjson

from rioni.commands.event_types import AddSchema, why_incompatible
from rioni.domain.avro.binary import BATCH_SCHEMAS, BatchSchema, batch_schema
from rioni.domain.errors import InvalidFields, Malformed, NotFound
from rioni.domain.event_types.event_type import Schema, SubmittedSchema
from rioni.http.answers import answer_list
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import DEFINITION_BYTES_MAX, read_json
from rioni.http.dependencies import Resource
from rioni.http.request_parsing import AS_OF, as_of, dispatch, integer, parsed
from rioni.http.resources.filter_evaluations import SchemaChange, warning
from rioni.projections.queries import schemas


PAGE_MAX = 1_000
PAGE_DEFAULT = 20


class SchemasResource(Resource):
    """The collection."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """List versions, newest first."""
        offset, limit = integer(req, "offset", 0), integer(req, "limit", PAGE_DEFAULT)
        if not 1 <= limit <= PAGE_MAX:
            raise Malformed(f"'limit' parameter sholud have value between 1 and {PAGE_MAX}")
        if offset < 0:
            raise Malformed("'offset' parameter can't be lower than 0")
        at = as_of(req, resp, self._dependencies)
        came, more = self._dependencies.query(schemas.page, name, offset, limit, at)
        when = "" if at is None else f"&{AS_OF}={at.position}"
        links = _links(f"{req.root_path}/event-types/{name}/schemas", offset, limit, when, empty=not came, more=more)
        answer_list(
            req,
            resp,
            self._dependencies.answers,
            came,
            lambda some: self._dependencies.query(schemas.piece, name, some, at),
            head=b'{"items":[',
            tail=lambda: b'],"_links":%b}' % orjson.dumps(links),
        )

    def on_post(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Add a version; with `fetch` only find the one that is the same."""
        submitted = parsed(parsing.submitted_schema, read_json(req, DEFINITION_BYTES_MAX), self._dependencies)
        if req.get_param_as_bool("fetch"):
            resp.data = self._dependencies.query(schemas.body_like, name, submitted).encode()
            return
        self._dependencies.registry.refresh()
        change = SchemaChange(self._dependencies, name)
        schema, added = dispatch(AddSchema(name=name, schema=submitted), req, self._dependencies)
        if added and (warnings := change.warnings()):
            resp.set_header("Warning", ", ".join(map(warning, warnings)))
        resp.status = (HTTPStatus.CREATED if added else HTTPStatus.OK).value
        resp.data = msgspec.json.encode(schema)


class SchemaResource(Resource):
    """One version."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str, version: str) -> None:
        """Show a version; `latest` is the current one."""
        at = as_of(req, resp, self._dependencies)
        resp.data = self._dependencies.query(schemas.body_of, name, version, at).encode()


class CompatibilityCheckResource(Resource):
    """Whether a schema could follow a version."""

    def on_post(self, req: falcon.Request, resp: falcon.Response, name: str, version: str) -> None:
        """Say whether the event type's mode lets a schema follow a version, and if not why."""
        submitted = parsed(parsing.submitted_schema, read_json(req, DEFINITION_BYTES_MAX), self._dependencies)
        if submitted.schema is None:
            raise InvalidFields([("schema", "must not be null")])
        self._dependencies.registry.refresh()
        event_type = self._dependencies.registry.event_type(name)
        body = self._dependencies.query(schemas.body_of, name, version)
        known = msgspec.json.decode(body, type=Schema)
        wanted = SubmittedSchema(type=submitted.type or known.type, schema=submitted.schema)
        error = self._dependencies.compute_pool(why_incompatible, event_type, known, wanted)
        answer = {
            "compatible": error is None,
            "compatibility_mode": event_type.compatibility_mode,
            "validated_against_version": known.version,
        }
        resp.data = orjson.dumps(answer if error is None else answer | {"error": error})


def _links(path: str, offset: int, limit: int, when: str, *, empty: bool, more: bool) -> dict[str, Any]:
    links: dict[str, Any] = {}
    if offset > 0 and not empty:
        links["prev"] = {"href": f"{path}?offset={max(0, offset - limit)}&limit={limit}{when}"}
    if more:
        links["next"] = {"href": f"{path}?offset={offset + limit}&limit={limit}{when}"}
    return links


class AvroSchemasResource(Resource):
    """All versions of the schema of a batch."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """List the versions, oldest first."""
        if (versions := BATCH_SCHEMAS.get(name)) is None:
            raise NotFound(f"Avro schema not found for: {name[:100]}. Available: {', '.join(BATCH_SCHEMAS)}")
        resp.data = orjson.dumps({"items": [_shown(schema) for schema in versions.values()]})


class AvroSchemaResource(Resource):
    """One version."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response, name: str, version: str) -> None:
        """Show a version."""
        resp.data = orjson.dumps(_shown(batch_schema(name, version)))


def _shown(schema: BatchSchema) -> dict[str, Any]:
    return {"avro_schema": schema.document, "version": schema.version}
