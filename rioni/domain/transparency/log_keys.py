"""The keys that sign checkpoints of the internal log: the log records them, and each signs the one that follows."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rioni.domain.errors import Malformed
from rioni.domain.events import DomainEvent
from rioni.domain.transparency.checkpoint import Note, Verifier, parse_note, sign, verified


# --- Changes of the key that signs checkpoints: the old key signs the new one ---
#
# The statement is a signed note of three lines: a title, the old verifier key, and the new one. It can't be read as a
# checkpoint, whose second line is a number.

TITLE = "rioni/key-succession/v1"


class LogKey(NamedTuple):
    """A key that signs checkpoints from some entry of the log on."""

    verifier: Verifier
    signature: str = ""
    """The signature by the previous key, as a line of a signed note; empty for the first key, and after a lost key."""


class SigningKey(NamedTuple):
    """A private key, and how it follows the key before."""

    private: Ed25519PrivateKey
    signature: str = ""
    """The signature by the previous key, as in `LogKey`."""
    lost: str = ""
    """The verifier key of the key before, if that was lost."""


def statement(before: Verifier, after: Verifier) -> str:
    """Return the text that the key before signs."""
    return f"{TITLE}\n{before}\n{after}\n"


def sign_successor(before: Verifier, key: Ed25519PrivateKey, after: Verifier) -> str:
    """Return the signature line of a key for the one that follows it."""
    return str(sign(statement(before, after), before.name, key))


def succession_note(before: Verifier, after: LogKey) -> Note:
    """Return the signed note by which a key follows another one; its signature is not verified.

    Raises:
        Malformed: there is no signature.
    """
    return parse_note(f"{statement(before, after.verifier)}\n{after.signature}\n".encode())


def check_successor(before: Verifier, after: LogKey) -> None:
    """Check that a key was signed by the one before it.

    Raises:
        Malformed: it was not, or it is the key of another log.
    """
    if after.verifier.name != before.name:
        raise Malformed(f"{after.verifier.name} is the name of another log, not of {before.name}.")
    if before not in verified(succession_note(before, after), [before]):
        raise Malformed(f"The key {after.verifier} is not signed by {before}.")


def successors(known: Verifier, keys: Sequence[LogKey]) -> Iterator[Verifier]:
    """Yield a key, and those of a log that follow it by signatures, up to the first one that was not signed.

    Args:
        known: a key that is trusted; if the log does not name it, it is the only one.
        keys: all keys of the log, in their order.
    """
    yield known
    verifiers = [each.verifier for each in keys]
    before = known
    for after in keys[verifiers.index(known) + 1 :] if known in verifiers else ():
        try:
            check_successor(before, after)
        except Malformed:
            return
        yield after.verifier
        before = after.verifier


# --- The keys that sign the checkpoints of the internal log, as the log itself records them ---

LOG_KEYS = "log-keys"
"""The one key of their stream."""


class RecordedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key, as the log records it."""

    verifier: str
    """The verifier key of signed notes: name, id and public key."""
    signature: str = ""
    """The signature by the previous key; see `rioni.domain.transparency.log_keys.LogKey`."""


class LogKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the keys."""

    keys: tuple[RecordedKey, ...] = ()
    """The keys in the order in which they were added; the last one signs."""


class LogKeyAdded(DomainEvent, frozen=True, kw_only=True):
    """A key was added, which signs checkpoints from now on."""

    TOPIC = "log-keys.added"
    KEY = "name"

    name: str = LOG_KEYS
    verifier: str
    """The verifier key, as in `RecordedKey`."""
    signature: str = ""
    """The signature by the key before it, as in `RecordedKey`."""


def evolve(state: LogKeys | None, event: DomainEvent) -> LogKeys:
    """The state after an event; total."""
    assert isinstance(event, LogKeyAdded)
    added = RecordedKey(verifier=event.verifier, signature=event.signature)
    return LogKeys(keys=(*(state or LogKeys()).keys, added))
