"""Headers stored with an event, and those of requests that publish: idempotency key, consumer tag, span context."""

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from rioni.domain.access.authorization import Attribute
from rioni.domain.errors import Invalid, Malformed
from rioni.domain.event_types.event_type import EventType
from rioni.domain.schemas.patterns import is_uuid


# --- Headers stored with an event, outside its JSON ---


class Headers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Data that the broker stores with an event's JSON; the names are stored, so none may ever change."""

    key: str | None = None
    """Compaction key, with the owner: see `stored_key` (reference publishing#compaction-key)."""
    owner: Attribute | None = None
    """The event's owner (reference publishing#event-owners)."""
    subscription_id: str | None = None
    """The only subscription that gets it (reference publishing#consumer-tag)."""
    avro: bytes | None = None
    """The datum as it was published in Avro; the event itself is always JSON."""


NO_HEADERS = Headers()

_OWNED = "\x1fowned:"
"""How the stored keys of owned events begin."""


def stored_key(key: str, owner: Attribute | None) -> str:
    """The key under which an event is compacted: events of different owners never supersede each other.

    An event without an owner keeps its key as it is, unless that could be mistaken for one of an owner.

    Args:
        key: the compaction key that the publisher has chosen.
        owner: the owner of the event, None for no owner.
    """
    if owner is None and not key.startswith(_OWNED):
        return key
    named = [] if owner is None else [owner.data_type, owner.value]
    return _OWNED + msgspec.json.encode([*named, key]).decode()


COMPACTED = Headers(key="")
"""Marks the position of an event that compaction has removed; no event has an empty key."""

HEADERS_BYTES = 150
"""Memory of an event's headers without Avro data: an object and a few short strings."""


def headers_bytes(headers: Sequence[Headers] | None) -> int:
    """Approximate size of headers in memory, in bytes."""
    return sum([HEADERS_BYTES + len(each.avro or b"") for each in headers]) if headers else 0


# --- Deduplication of batches by idempotency key, and of events by id ---
#
# A batch is known by the key that its publisher gives it (header Idempotency-Key, as in the IETF draft of that name),
# an event by its eid, if the event type enables that. All keys begin with the event type's incarnation, so that a
# recreated event type is independent of its predecessor's events; those of events that not everybody may read, with
# their readers.

IDEMPOTENCY_KEY = "Idempotency-Key"
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
        raise Malformed(
            f"{IDEMPOTENCY_KEY} must be 1 to {KEY_CHARACTERS_MAX} printable ASCII characters, such as a UUID"
        )
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


def claim_of(scope: str, *, client: str, key: str, kind: str, body: bytes) -> IdempotencyClaim:
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
    """The id of a claim, whatever the batch; arguments are those of `claim_of`."""
    return f"{scope}:{_hash(_DIGEST_BYTES, client, key)}"


def _hash(size: int, *parts: str | bytes) -> str:
    digest = blake2b(digest_size=size)
    for part in parts:
        encoded = part.encode() if isinstance(part, str) else part
        # Each part is prefixed with its length, so different parts never yield the same bytes.
        digest.update(len(encoded).to_bytes(8) + encoded)
    return digest.hexdigest()


# --- The header X-CONSUMER-TAG: the only subscription that gets a batch (reference publishing#consumer-tag) ---

CONSUMER_TAG = "X-CONSUMER-TAG"
SUBSCRIPTION_ID = "CONSUMER_SUBSCRIPTION_ID"
"""The only tag; its name is case-insensitive."""

_NAME_AND_VALUE = 2


def tagged_subscription(header: str) -> str:
    """The id of the subscription that a batch is for.

    Args:
        header: `name=value`, separated by commas; spaces mean nothing.

    Raises:
        Invalid: it is empty, or a tag is unknown, there twice, or without a value that is a UUID.
    """
    text = "".join(header.split())
    if not text:
        raise Invalid(f"{CONSUMER_TAG}: is empty!")
    tags: dict[str, str] = {}
    for part in text.split(","):
        pieces = part.split("=")
        if len(pieces) != _NAME_AND_VALUE:
            raise Invalid(f"header tag parameter is imbalanced, expected: {_NAME_AND_VALUE} but provided {len(pieces)}")
        name, value = pieces
        if name.upper() != SUBSCRIPTION_ID:
            raise Invalid(f"invalid header tag: {name}")
        if SUBSCRIPTION_ID in tags:
            raise Invalid(f"duplicate header tag: {SUBSCRIPTION_ID}")
        if not is_uuid(value):
            raise Invalid(f"header tag value: {value} is not an UUID")
        tags[SUBSCRIPTION_ID] = value.lower()
    return tags[SUBSCRIPTION_ID]


# --- Reads the span context of a request, for its events and for the response ---
#
# Sources: reference common#content-types (`span_ctx`, a text map), metadata's member `span_ctx`; W3C Trace Context
# (`traceparent`, `tracestate`).

CONTEXT_BYTES_MAX = 1_024
"""The maximum size of a context as JSON. Every event of a batch may get a copy of it."""

_MAP = msgspec.json.Decoder(dict[str, str])
_TRACE_PARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_VERSION = "00"
"""The version of `traceparent` that ends after its flags; later versions may have more fields."""


def span_context(span_ctx: str | None, trace_parent: str | None, trace_state: str | None) -> Mapping[str, str]:
    """The span context in a request's headers; invalid or too large values count as absent.

    Args:
        span_ctx: a JSON object of texts. Where it names a member of W3C's itself, that one holds.
        trace_parent: W3C's header.
        trace_state: W3C's header; goes with `trace_parent` only.
    """
    context: dict[str, str] = {}
    if trace_parent and _is_trace_parent(trace_parent):
        context["traceparent"] = trace_parent
        if trace_state and trace_state.isascii() and trace_state.isprintable():
            context["tracestate"] = trace_state
    if span_ctx:
        context |= _text_map(span_ctx)
    return context if len(msgspec.json.encode(context)) <= CONTEXT_BYTES_MAX else {}


def _is_trace_parent(text: str) -> bool:
    match = _TRACE_PARENT.fullmatch(text)
    return match is not None and (match[1] != _VERSION or match[2] is None)


def _text_map(text: str) -> dict[str, str]:
    try:
        return _MAP.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return {}
