"""Context of a command: subject and time."""

from uuid import UUID, uuid5

import msgspec

from rioni.domain.authorization import Subject
from rioni.domain.events import Origin


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The context of one command, stored with every event that it yields."""

    subject: Subject
    origin: Origin

    @property
    def now(self) -> str:
        """The time of the command, RFC 3339 with milliseconds."""
        return self.origin.recorded_at

    @property
    def topic(self) -> str:
        """The id of the topic that the command creates, if it creates one."""
        return self.derive_id("topic")

    def derive_id(self, purpose: str) -> str:
        """An id for something that the command creates; deterministic, so the same if the command is run again."""
        return str(uuid5(UUID(self.origin.command_id), purpose))
