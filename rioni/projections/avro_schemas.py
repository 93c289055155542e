"""The Avro schemas of event types, compiled: those of all versions, as publishers may use any of them."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from rioni.domain.avro.event_schema import EventSchema
from rioni.domain.errors import Invalid, NotFound
from rioni.domain.event_types.event_type import EventType
from rioni.domain.ports.thread_pool import ThreadPool
from rioni.projections.queries import schemas


KEPT_MAX = 1_000


class CompiledAvroSchemas:
    """Implements the port `AvroSchemas`, one per process.

    A version never changes while its event type lives; the time of its creation tells one life from the next.
    """

    def __init__(self, read: Callable[..., Any], pool: ThreadPool, bytes_max: int) -> None:
        """Begin with none.

        Args:
            read: `read(query, ...)` calls `query(connection, ...)` with a connection to the read models.
            pool: runs reading and compiling.
            bytes_max: maximum length of an event's JSON.
        """
        self._read = read
        self._pool = pool
        self._bytes_max = bytes_max
        self._kept = lru_cache(KEPT_MAX)(self._compiled)

    def of(self, event_type: EventType, version: str) -> EventSchema:
        """The schema, compiled when it is first asked for."""
        return self._kept(event_type.name, event_type.created_at, version)

    def _compiled(self, name: str, _created_at: str, version: str) -> EventSchema:
        return self._pool(self._compile, name, version)

    def _compile(self, name: str, version: str) -> EventSchema:
        schema = self._read(schemas.find, name, version)
        if schema is None:
            raise NotFound(f'EventType "{name}" has no schema with version "{version[:100]}"')
        if schema.type != "avro_schema":
            raise Invalid(
                f'version "{version}" of the schema of EventType "{name}" is a {schema.type}: publish in JSON'
            )
        return EventSchema(schema.schema, self._bytes_max)
