"""Headers of requests that publish: the only subscription that gets a batch, and the span context of its events."""

import re
from collections.abc import Mapping

import msgspec

from rioni.domain.errors import Invalid
from rioni.domain.schemas.patterns import is_uuid


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
