"""The Avro schemas of event types, compiled: those of all versions, as publishers may use any of them."""

from collections.abc import Callable
from typing import Any

from rioni.domain.avro.event_schema import EventSchema
from rioni.domain.compiled_cache import CompiledCache
from rioni.domain.errors import Invalid, NotFound
from rioni.domain.event_types.event_type import EventType
from rioni.domain.ports.thread_pool import ThreadPool
from rioni.projections.queries import schemas


COMPILED_BYTES, COMPILED_BYTES_PER_CHARACTER = 5_000, 25
"""PERF: memory of a compiled schema by the length of its text: 19 bytes with a thousand fields."""


class CompiledAvroSchemas:
    """Implements the port `AvroSchemas`, one per process.

    A version never changes while its event type lives; the time of its creation tells one life from the next.
    """

    def __init__(
        self, read: Callable[..., Any], pool: ThreadPool, bytes_max: int, compiled: CompiledCache[EventSchema]
    ) -> None:
        """Begin with none.

        Args:
            read: `read(query, ...)` calls `query(connection, ...)` with a connection to the read models.
            pool: runs reading and compiling.
            bytes_max: maximum length of an event's JSON.
            compiled: keeps the schemas.
        """
        self._read = read
        self._pool = pool
        self._bytes_max = bytes_max
        self._kept = compiled

    def of(self, event_type: EventType, version: str) -> EventSchema:
        """The schema, compiled when it is first asked for."""
        key = event_type.name, event_type.created_at, version
        found = self._kept.get(key)
        return self._pool(self._compile, key) if found is None else found

    def _compile(self, key: tuple[str, str, str]) -> EventSchema:
        # Others may have waited for the pool with the same wish.
        if (found := self._kept.get(key)) is not None:
            return found
        name, _, version = key
        schema = self._read(schemas.find, name, version)
        if schema is None:
            raise NotFound(f'EventType "{name}" has no schema with version "{version[:100]}"')
        if schema.type != "avro_schema":
            raise Invalid(
                f'version "{version}" of the schema of EventType "{name}" is a {schema.type}: publish in JSON'
            )
        compiled = EventSchema(schema.schema, self._bytes_max)
        self._kept.put(key, compiled, COMPILED_BYTES + COMPILED_BYTES_PER_CHARACTER * len(schema.schema))
        return compiled
