"""Versions of schemas."""

from collections.abc import Iterator, Sequence

import msgspec

from rioni.client._sync.transport import Transport, decode
from rioni.wire.event_types import AvroSchema, Compatibility, Schema


PAGE = 1_000

_LIST = "/event-types/{name}/schemas"
_ITEM = "/event-types/{name}/schemas/{version}"


class _Page(msgspec.Struct):
    items: list[Schema]


class _AvroSchemas(msgspec.Struct):
    items: list[AvroSchema]


class Schemas:
    """Lists, adds and checks versions of schemas. Methods raise `ClientError`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, name: str, *, as_of: str | int | None = None) -> Iterator[Schema]:
        """All versions of the schema of an event type, newest first; asks for a page when it is needed."""
        offset = 0
        while True:
            params = {"limit": PAGE, "offset": offset, "as_of": as_of}
            page = self._transport.fetch(_Page, "GET", _LIST, path={"name": name}, params=params)
            for schema in page.items:
                yield schema
            offset += PAGE
            if len(page.items) < PAGE:
                return

    def get(self, name: str, version: str = "latest", *, as_of: str | int | None = None) -> Schema:
        """A version of the schema of an event type; raises NotFound."""
        path = {"name": name, "version": version}
        return self._transport.fetch(Schema, "GET", _ITEM, path=path, params={"as_of": as_of})

    def add(self, name: str, schema: Schema) -> Schema | None:
        """Add a version; None if the broker does not answer with it.

        Raises:
            Unprocessable: the schema is invalid, or the compatibility mode does not allow the change.
        """
        response = self._transport.request("POST", _LIST, path={"name": name}, body=schema.members())
        return decode(response, Schema) if response.content else None

    def find(self, name: str, schema: Schema) -> Schema:
        """The version that has this schema; raises NotFound."""
        return self._transport.fetch(
            Schema,
            "POST",
            _LIST,
            path={"name": name},
            params={"fetch": "true"},
            body=schema.members(),
            repeatable=True,
        )

    def check(self, name: str, schema: Schema, version: str = "latest") -> Compatibility:
        """Whether a schema may follow a version, under the event type's compatibility mode; changes nothing."""
        return self._transport.fetch(
            Compatibility,
            "POST",
            f"{_ITEM}/compatibility-check",
            path={"name": name, "version": version},
            body=schema.members(),
            repeatable=True,
        )

    def avro_versions(self, name: str) -> Sequence[AvroSchema]:
        """All versions of the Avro schema of a batch: `batch.publishing` or `batch.consumption`."""
        found = self._transport.fetch(_AvroSchemas, "GET", "/avro-schemas/{name}/versions", path={"name": name})
        return found.items

    def avro(self, name: str, version: str) -> AvroSchema:
        """A version of the Avro schema of a batch."""
        path = {"name": name, "version": version}
        return self._transport.fetch(AvroSchema, "GET", "/avro-schemas/{name}/versions/{version}", path=path)
