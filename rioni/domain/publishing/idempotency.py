"""Deduplication of batches by idempotency key, and of events by id.

A batch is known by the key that its publisher gives it (header Idempotency-Key, as in the IETF draft of that name), an
event by its eid, if the event type enables that. All keys begin with the event type's incarnation, so that a recreated
event type is independent of its predecessor's events; those of events that not everybody may read, with their readers.
"""

from hashlib import blake2b
from typing import NamedTuple

from rioni.domain.access.authorization import Attribute
from rioni.domain.errors import Malformed
from rioni.domain.event_types.event_type import EventType
from rioni.domain.publishing.headers import Headers


HEADER = "Idempotency-Key"
KEY_CHARACTERS_MAX = 255

_SCOPE_BYTES = 8
_DIGEST_BYTES = 16


class IdempotencyClaim(NamedTuple):
    """Idempotency key of a batch, which is stored once."""

    id: str
    """The key, unique within the store: callers prefix it."""
    digest: str
    """Digest of the batch, to detect another batch with the same key."""


def check_key(text: str) -> str:
    """Validate the key of a batch from the header.

    Raises:
        Malformed: too short, too long, or with other than printable ASCII characters.
    """
    if not (1 <= len(text) <= KEY_CHARACTERS_MAX and text.isascii() and text.isprintable()):
        raise Malformed(f"{HEADER} must be 1 to {KEY_CHARACTERS_MAX} printable ASCII characters, such as a UUID")
    return text


def scope_of(event_type: EventType) -> str:
    """The prefix of all keys of an event type, different for each incarnation of it."""
    return _hash(_SCOPE_BYTES, event_type.name, event_type.created_at)


def audience_scope(scope: str, headers: Headers) -> str:
    """The prefix of the ids of events with the same readers: ids of events that some can't read never match others."""
    if headers.subscription_id is None and headers.owner is None:
        return scope
    owner = headers.owner or Attribute("", "")
    return _hash(_SCOPE_BYTES, scope, headers.subscription_id or "", owner.data_type, owner.value)


def claim(scope: str, *, client: str, key: str, kind: str, body: bytes) -> IdempotencyClaim:
    """The claim of a batch; every worker derives the same one from the same request.

    Args:
        scope: the scope of the event type.
        client: the key of the publisher; idempotency keys of different publishers are unrelated.
        key: the client's idempotency key.
        kind: operation and consumer tag, which also distinguish requests.
        body: the batch, decompressed.
    """
    return IdempotencyClaim(claim_id(scope, client=client, key=key), _hash(_DIGEST_BYTES, kind, body))


def claim_id(scope: str, *, client: str, key: str) -> str:
    """The id of a claim, whatever the batch; arguments are those of `claim`."""
    return f"{scope}:{_hash(_DIGEST_BYTES, client, key)}"


def _hash(size: int, *parts: str | bytes) -> str:
    digest = blake2b(digest_size=size)
    for part in parts:
        encoded = part.encode() if isinstance(part, str) else part
        # Each part is prefixed with its length, so different parts never yield the same bytes.
        digest.update(len(encoded).to_bytes(8) + encoded)
    return digest.hexdigest()
