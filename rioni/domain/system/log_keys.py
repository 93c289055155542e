"""The keys that sign the checkpoints of the internal log: the log itself records which ones there were."""

import msgspec

from rioni.domain.events import DomainEvent


LOG_KEYS = "log-keys"
"""The one key of their stream."""


class RecordedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key, as the log records it."""

    verifier: str
    """The verifier key of signed notes: name, id and public key."""
    signature: str = ""
    """Of the key before it; see `rioni.domain.transparency.key_succession.LogKey`."""


class LogKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the keys."""

    keys: tuple[RecordedKey, ...] = ()
    """In the order in which they were added; the last one signs."""


class LogKeyAdded(DomainEvent, frozen=True, kw_only=True):
    """From now on checkpoints are signed with this key."""

    TOPIC = "log-keys.added"
    KEY = "name"

    name: str = LOG_KEYS
    verifier: str
    """As in `RecordedKey`."""
    signature: str = ""
    """As in `RecordedKey`."""


def evolve(state: LogKeys | None, event: DomainEvent) -> LogKeys:
    """The state after an event; total."""
    assert isinstance(event, LogKeyAdded)
    added = RecordedKey(verifier=event.verifier, signature=event.signature)
    return LogKeys(keys=(*(state or LogKeys()).keys, added))
