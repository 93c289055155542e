"""Parameters of a stream: parsing, defaults and validation.

Source: reference low-level-streams#parameters, streams#parameters, streams#parameter-errors.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from rioni.domain.errors import Invalid, Malformed
from rioni.domain.timelines.position import EventTypePartition


BATCH_FLUSH_TIMEOUT_DEFAULT_S = 30
MAX_UNCOMMITTED_EVENTS_DEFAULT = 10

_NUMBERS = (
    "batch_limit",
    "stream_limit",
    "batch_flush_timeout",
    "batch_timespan",
    "stream_timeout",
    "stream_keep_alive_limit",
    "max_uncommitted_events",
    "commit_timeout",
    "events_per_second_limit",
)
_INT32_MAX = 2**31 - 1
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and defaults of the broker, including a random stream timeout."""

    stream_timeout_default_s: float
    """Used if the client requests none, or one that is too long: about an hour, with jitter."""
    stream_timeout_max_s: int = 4_200
    commit_timeout_max_s: int = 60
    memory_bytes_max: int = 50_000_000


class StreamParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of one stream; those of the subscription API come last and don't apply to a low-level stream."""

    batch_limit: int = 1
    stream_limit: int = 0
    """Events in all; 0 without end."""
    batch_flush_timeout_s: int = BATCH_FLUSH_TIMEOUT_DEFAULT_S
    stream_timeout_s: float
    stream_keep_alive_limit: int = 0
    """Consecutive empty batches on every partition; 0 without end, a negative number ends the stream at once."""
    events_per_second_limit: int = 0
    """The limit of events read per second; others are left out. 0 for all; for low-level streams only."""
    memory_bytes_max: int = 50_000_000
    max_uncommitted_events: int = 0
    """0 for no end: a low-level stream, which commits nothing."""
    batch_timespan_s: int = 0
    """0 for off."""
    commit_timeout_s: int = 60
    partitions: tuple[EventTypePartition, ...] = ()
    """Requested partitions; empty for automatic assignment."""


def low_level_parameters(query: Mapping[str, Any], limits: StreamLimits) -> StreamParameters:
    """The parameters of a low-level stream.

    Args:
        query: numbers, or the text of numbers, by name; None and absent are the same, other names are ignored.
        limits: the limits of the broker.

    Raises:
        Malformed: a value is not an integer.
        Invalid: values are out of range; the first of stream_limit, stream_timeout, batch_limit,
            events_per_second_limit is named.
    """
    values = _numbers(query)
    batch_limit = values.get("batch_limit", 1)
    _check_stream_limit(values, batch_limit)
    flush_timeout_s = _flush_timeout_s(values)
    stream_timeout_s = _stream_timeout_s(values, limits)
    if stream_timeout_s < flush_timeout_s:
        raise Invalid("stream_timeout can't be lower than batch_flush_timeout")
    _check_batch_limit(batch_limit)
    events_per_second_limit = values.get("events_per_second_limit", 0)
    if events_per_second_limit < 0:
        raise Invalid("events_per_second_limit can't be lower than 0")
    return StreamParameters(
        batch_limit=batch_limit,
        events_per_second_limit=events_per_second_limit,
        stream_limit=values.get("stream_limit", 0),
        batch_flush_timeout_s=flush_timeout_s,
        stream_timeout_s=stream_timeout_s,
        stream_keep_alive_limit=values.get("stream_keep_alive_limit", 0),
        memory_bytes_max=limits.memory_bytes_max,
    )


def subscription_parameters(body: Mapping[str, Any], limits: StreamLimits) -> StreamParameters:
    """The parameters of a stream of a subscription, from a query or a JSON body.

    A stream_timeout below batch_flush_timeout is accepted: clients use it.

    Args:
        body: as for a low-level stream, and `partitions`, a list of objects with `event_type` and `partition`.
        limits: the limits of the broker.

    Raises:
        Malformed: a value has the wrong type.
        Invalid: a value is out of range, or a partition is named twice.
    """
    values = _numbers(body)
    batch_limit = values.get("batch_limit", 1)
    _check_batch_limit(batch_limit)
    _check_stream_limit(values, batch_limit)
    max_uncommitted = values.get("max_uncommitted_events", MAX_UNCOMMITTED_EVENTS_DEFAULT)
    if max_uncommitted < 1:
        raise Invalid("max_uncommitted_events can't be lower than 1")
    commit_timeout_s = values.get("commit_timeout", 0)
    if commit_timeout_s > limits.commit_timeout_max_s:
        raise Invalid(f"commit_timeout can not be more than {limits.commit_timeout_max_s}")
    if commit_timeout_s < 0:
        raise Invalid("commit_timeout can not be less than 0")
    return StreamParameters(
        batch_limit=batch_limit,
        stream_limit=values.get("stream_limit", 0),
        batch_flush_timeout_s=_flush_timeout_s(values),
        stream_timeout_s=_stream_timeout_s(values, limits),
        stream_keep_alive_limit=values.get("stream_keep_alive_limit", 0),
        memory_bytes_max=limits.memory_bytes_max,
        max_uncommitted_events=max_uncommitted,
        batch_timespan_s=max(0, values.get("batch_timespan", 0)),
        commit_timeout_s=commit_timeout_s or limits.commit_timeout_max_s,
        partitions=_partitions(body.get("partitions")),
    )


def check_partitions(requested: tuple[EventTypePartition, ...], existing: Collection[EventTypePartition]) -> None:
    """Reject partitions that are named twice, or don't belong to the subscription.

    Raises:
        Invalid: names all that don't belong to it.
    """
    if len(set(requested)) < len(requested):
        raise Invalid("Duplicated partition specified")
    if wrong := [partition for partition in requested if partition not in existing]:
        named = ", ".join(
            f"EventTypePartition{{eventType='{event_type}', partition='{partition}'}}"
            for event_type, partition in wrong
        )
        raise Invalid(f"Wrong partitions specified - some partitions don't belong to subscription: {named}")


def _numbers(values: Mapping[str, Any]) -> dict[str, int]:
    return {name: _number(name, values[name]) for name in _NUMBERS if values.get(name) is not None}


def _number(name: str, value: Any) -> int:
    is_whole = isinstance(value, float) and value.is_integer()  # as in all bodies
    number = int(value) if is_whole or (isinstance(value, str) and _NUMBER.fullmatch(value.strip())) else value
    # A bool is an int to Python, and to no client.
    if isinstance(number, bool) or not isinstance(number, int):
        raise Malformed(f"{name} must be an integer, but is {value!r:.50}")
    if abs(number) > _INT32_MAX:
        raise Malformed(f"{name} must be an integer of 32 bits")
    return number


def _check_batch_limit(batch_limit: int) -> None:
    if batch_limit < 1:
        raise Invalid("batch_limit can't be lower than 1")


def _check_stream_limit(values: Mapping[str, int], batch_limit: int) -> None:
    stream_limit = values.get("stream_limit", 0)
    if stream_limit and stream_limit < batch_limit:
        raise Invalid("stream_limit can't be lower than batch_limit")


def _flush_timeout_s(values: Mapping[str, int]) -> int:
    timeout_s = values.get("batch_flush_timeout", 0)
    return timeout_s if timeout_s > 0 else BATCH_FLUSH_TIMEOUT_DEFAULT_S


def _stream_timeout_s(values: Mapping[str, int], limits: StreamLimits) -> float:
    timeout_s = values.get("stream_timeout", 0)
    return timeout_s if 0 < timeout_s <= limits.stream_timeout_max_s else limits.stream_timeout_default_s


def _partitions(items: Any) -> tuple[EventTypePartition, ...]:
    if items is None:
        return ()
    if not isinstance(items, list):
        raise Malformed("partitions must be a list")
    return tuple(_partition(item) for item in items)


def _partition(item: Any) -> EventTypePartition:
    match item:
        case {"event_type": str(event_type), "partition": str(partition)}:
            return EventTypePartition(event_type, partition)
        case _:
            raise Malformed("each of partitions must have event_type and partition, both of them text")
