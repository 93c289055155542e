"""The keyword arguments of a client, its producers and its methods, where several functions take them."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import msgspec

from rioni.client import encoding
from rioni.wire.events import Cursor
from rioni.wire.subscriptions import SubmittedAfter, SubmittedRedrive


Token = str | Callable[[], Any] | None


class ClientOptions(TypedDict, total=False):
    """Options of a client, by name; the class has their meanings and `Transport` their defaults."""

    token: Token
    ca_certificate: str | Path | None
    timeout_s: float
    retry_s: float
    attempts: int | None
    headers: Mapping[str, str] | None
    sleep: Callable[[float], Any] | None


# --- Publishing ---


class ProducerOptions(TypedDict, total=False):
    """Options of a producer, by name; `ProducerSettings` has their meanings and defaults."""

    batch_events: int
    batch_bytes: int
    linger_s: float
    in_flight: int
    key: Callable[[Any], Hashable] | None
    buffer_events: int
    buffer_bytes: int
    timeout_s: float
    compression: str | None
    idempotent: bool
    headers: Mapping[str, str] | None
    on_result: Callable[[Any], object] | None


class ProducerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a producer; raises ValueError if a limit is not positive, or there is no such compression."""

    batch_events: int = 500
    """Events in a batch at most."""
    batch_bytes: int = 1_000_000
    """Bytes in a batch at most; a larger event is a separate batch."""
    linger_s: float = 0.01
    """How long a batch waits for more events at most."""
    in_flight: int = 1
    """How many batches are sent at the same time."""
    key: Callable[[Any], Hashable] | None = None
    """Returns the part of an event, as it was passed to `send`, that decides about order: with several batches in
    flight, events for which it returns equal values are stored in the order of `send`."""
    buffer_events: int = 10_000
    """How many events without a result are held; `send` waits beyond that."""
    buffer_bytes: int = 32_000_000
    """How many bytes of such events are held."""
    timeout_s: float = 120
    """How long an event is tried to be delivered, from `send` on."""
    compression: str | None = None
    """Compression of bodies: `gzip` or `zstd`."""
    idempotent: bool = True
    """Whether batches have an idempotency key, so that repeating them stores nothing twice. Without, which is for
    brokers that do not know such keys, only the failed events of a batch are sent again."""
    headers: Mapping[str, str] | None = None
    """Headers of each request, such as `X-Flow-Id`."""
    on_result: Callable[[Any], object] | None = None
    """Called with each delivery that is done, in the background; must not block. Errors count as examined then."""

    def __post_init__(self) -> None:
        for name in (
            "batch_events",
            "batch_bytes",
            "linger_s",
            "buffer_events",
            "buffer_bytes",
            "timeout_s",
            "in_flight",
        ):
            value = getattr(self, name)
            if value < 0 or (value == 0 and name != "linger_s"):
                raise ValueError(f"{name} is {value}; it must be positive")
        encoding.compressor(self.compression)


# --- Lists and redrives ---


class EventTypeFilters(TypedDict, total=False):
    """Filters of event types: one is selected if all that are given match."""

    name: str | None
    """A name, in which `*` matches any text."""
    owning_application: str | None
    category: str | None
    cleanup_policy: str | None
    admin: str | None
    """An attribute like `user:jane` that its administrators must list; `reader` and `writer` are alike."""
    reader: str | None
    writer: str | None
    labels: Sequence[str]
    """Keys, or `key:value`, that it must have; `annotations` are given in the same way."""
    annotations: Sequence[str]
    unused_days: int | None
    """For how many days, at most 90, nobody has published to it or read it."""
    as_of: str | int | None
    """A time (RFC 3339) or a position of the log: the state then."""


class RedriveSelection(TypedDict, total=False):
    """Selects the dead letters that are published again; without members all of them."""

    event_type: str | None
    partition: str | None
    from_offset: str | None
    """The first one."""
    to_offset: str | None
    """The last one."""
    reason: str | None
    """Exactly this message of their error."""
    limit: int | None
    """How many at most; by default 1,000."""
    force: bool
    """Whether to include those that were published again before."""
    after: Cursor | None
    """`after` of the answer to the same request before."""


def list_or_none(values: Sequence[str]) -> Sequence[str] | None:
    """Values of a query parameter that may be repeated; None leaves it out."""
    return [*values] or None


def filter_parameters(**filters: Unpack[EventTypeFilters]) -> dict[str, Any]:
    """The query parameters of filters; raises TypeError for one that does not exist."""
    if unknown := filters.keys() - EventTypeFilters.__annotations__.keys():
        raise TypeError(f"there are no filters {', '.join(sorted(unknown))} of event types")
    lists = {"label": filters.pop("labels", ()), "annotation": filters.pop("annotations", ())}
    return {**filters, **{name: list_or_none(values) for name, values in lists.items()}}


def redrive_body(**selection: Unpack[RedriveSelection]) -> dict[str, Any]:
    """The body of a redrive; raises TypeError for a member that does not exist."""
    members: dict[str, Any] = {**selection, "force": bool(selection.get("force"))}
    if (after := selection.get("after")) is not None:
        members["after"] = SubmittedAfter(partition=after.partition, offset=after.offset)
    return SubmittedRedrive(**members).members()
