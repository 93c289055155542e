"""What happened, as values: the base of all domain events, who caused them, and their stored form.

A stored event is `(topic, data)`. The topic is a name that never changes, whatever happens to modules and classes;
the data is plain JSON that a reader without this code can understand. `class_version` comes first in the data;
events written by an older class are upcast on reading, so that no stored byte ever has to change.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Self
from uuid import UUID, uuid5

import msgspec


STREAMS = UUID("5f1d9a52-6f0e-5c0a-9d35-7c1f0c8a4a11")
"""The namespace of all stream ids; changing it would orphan every log."""


def stream_id(kind: str, key: str) -> UUID:
    """The id of the stream that holds the history of one thing.

    Args:
        kind: the kind of aggregate, such as `event-type`.
        key: its natural key, such as the event type's name. The same key always names the same stream, so that
            creating a thing twice is a version conflict.
    """
    return uuid5(STREAMS, f"{kind}:{key}")


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Who caused an event, from where, with which request, and when."""

    actor: str
    """The subject's name; `unauthenticated` where nobody is asked, `rioni` for the broker itself."""
    client: str
    """The network address of the client, empty for the broker itself."""
    flow_id: str
    command_id: str
    """A UUID, the same for every event that one command yields."""
    recorded_at: str
    """RFC 3339 in UTC with milliseconds and `Z`."""


class DomainEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all domain events: frozen, complete, plain JSON.

    Subclasses set `TOPIC`, `<kind>.<past participle>`, and `KEY`, the field that says whose history they belong to.
    When a subclass changes its fields it raises the default of `class_version` and adds to `UPCASTERS` the step from
    the version before.
    """

    TOPIC: ClassVar[str]
    KEY: ClassVar[str]
    UPCASTERS: ClassVar[dict[int, Callable[[dict[str, Any]], dict[str, Any]]]] = {}

    class_version: int = 1

    @property
    def key(self) -> str:
        """The natural key of the aggregate that this happened to."""
        return str(getattr(self, self.KEY))

    @property
    def kind(self) -> str:
        """The kind of aggregate that this happened to."""
        return self.TOPIC.partition(".")[0]

    @property
    def stream(self) -> UUID:
        """The id of the stream that this belongs to."""
        return stream_id(self.kind, self.key)

    def encode(self) -> bytes:
        """The stored form: JSON, `class_version` first."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the stored form, upcasting what an older class wrote.

        Raises:
            msgspec.ValidationError: the data does not fit the class, or a newer class wrote it.
        """
        current = _current_version(cls)
        if data.startswith(b'{"class_version":%d,' % current):
            return msgspec.json.decode(data, type=cls)
        fields = msgspec.json.decode(data, type=dict[str, Any])
        written = fields.get("class_version", 1)
        if written not in range(1, current + 1):
            raise msgspec.ValidationError(f"class_version is {written!r}, the newest known here is {current}")
        for version in range(written, current):
            fields = cls.UPCASTERS[version](fields)
            fields["class_version"] = version + 1
        return msgspec.convert(fields, cls)


@cache
def _current_version(event_class: type[DomainEvent]) -> int:
    (version,) = (field.default for field in msgspec.structs.fields(event_class) if field.name == "class_version")
    return int(version)
