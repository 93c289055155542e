"""The keys that sign the checkpoints of the internal log: the log itself records which ones there were."""

import msgspec

from rioni.domain.events import DomainEvent


LOG_KEYS = "log-keys"
"""The one key of their stream."""


class LogKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the keys."""

    keys: tuple[str, ...] = ()
    """Verifier keys of signed notes, in the order in which they were added; the last one signs."""


class LogKeyAdded(DomainEvent, frozen=True, kw_only=True):
    """From now on checkpoints are signed with this key."""

    TOPIC = "log-keys.added"
    KEY = "name"

    name: str = LOG_KEYS
    verifier: str
    """The verifier key of signed notes: name, id and public key."""


def evolve(state: LogKeys | None, event: DomainEvent) -> LogKeys:
    """The state after an event; total."""
    assert isinstance(event, LogKeyAdded)
    return LogKeys(keys=(*(state or LogKeys()).keys, event.verifier))
