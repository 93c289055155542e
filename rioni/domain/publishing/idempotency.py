"""Deduplication of batches by idempotency key, and of events by id.

A batch is known by the key that its publisher gives it (header Idempotency-Key, as in the IETF draft of that name), an
event by its eid, where the event type asks for that. All names begin with the event type's life, so that one that was
deleted and created again knows nothing of its predecessor's events.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

from rioni.domain.errors import Malformed
from rioni.domain.event_types.event_type import EventType
from rioni.domain.ports.event_store import IdempotencyClaim
from rioni.domain.publishing.results import Events


HEADER = "Idempotency-Key"
KEY_CHARACTERS_MAX = 255
ANNOTATION = "rioni.io/idempotent-publishing"
"""The annotation that switches on for an event type that an eid is stored once."""
SWITCH = ("on", "off")

_SCOPE_BYTES = 8
_DIGEST_BYTES = 16


def check_key(text: str) -> str:
    """The key of a batch, as the header has it.

    Raises:
        Malformed: too short, too long, or with other than printable ASCII characters.
    """
    if not (1 <= len(text) <= KEY_CHARACTERS_MAX and text.isascii() and text.isprintable()):
        raise Malformed(f"{HEADER} must be 1 to {KEY_CHARACTERS_MAX} printable ASCII characters, such as a UUID")
    return text


def switch_violations(annotations: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield `(path, message)` if the annotation is neither on nor off."""
    if annotations.get(ANNOTATION, "off") not in SWITCH:
        yield f"annotations[{ANNOTATION}]", f"must be one of {', '.join(SWITCH)}"


def scope_of(event_type: EventType) -> str:
    """What all names of an event type begin with: other for every life of it."""
    return _hash(_SCOPE_BYTES, event_type.name, event_type.created_at)


def stores_eids_once(event_type: EventType) -> bool:
    """Whether an eid is stored once."""
    return event_type.annotations.get(ANNOTATION) == "on"


def claim(scope: str, *, client: str, key: str, kind: str, body: bytes) -> IdempotencyClaim:
    """The claim that a batch is stored under; any worker makes the same one of the same request.

    Args:
        scope: of the event type.
        client: who publishes: keys of others are others.
        key: the client's.
        kind: what else tells requests apart: what is asked for, and for whom.
        body: the batch, decompressed.
    """
    return IdempotencyClaim(f"{scope}:{_hash(_DIGEST_BYTES, client, key)}", _hash(_DIGEST_BYTES, kind, body))


def event_ids(scope: str, events: Events) -> Sequence[str]:
    """The names of events that have a valid eid."""
    return [f"{scope}:{event['metadata']['eid'].lower()}" for event in events]


def _hash(size: int, *parts: str | bytes) -> str:
    digest = blake2b(digest_size=size)
    for part in parts:
        encoded = part.encode() if isinstance(part, str) else part
        # With its length in front no part can pass for the beginning of the next.
        digest.update(len(encoded).to_bytes(8) + encoded)
    return digest.hexdigest()
