"""Cursor specs of clients: an offset, BEGIN, END or a timestamp, with an optional shift.

A spec is resolved once; stored and committed cursors are always offsets. See
`docs/concepts/cursors.md`.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from rioni.domain.errors import Invalid
from rioni.domain.schemas.patterns import MESSAGES
from rioni.domain.timelines.position import BEGIN
from rioni.domain.timestamps import DATE_TIME, parsed_ms


END = "END"


class CursorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A cursor spec for one partition, or for several: exactly one of `offset` and `timestamp` is set."""

    event_type: str | None = None
    """None for all that are asked about."""
    partition: str | None = None
    """None for all of the event type."""
    offset: str | None = None
    """The last event that was read, or BEGIN or END in any case."""
    timestamp: str | None = None
    """RFC 3339: the first event that was stored then or later is the next one."""
    shift: int = 0
    """How many events to move on from there; negative moves back."""

    @property
    def is_end(self) -> bool:
        """Whether it is the place after the last event."""
        return self.offset is not None and self.offset.upper() == END

    @property
    def is_offset(self) -> bool:
        """Whether it is an offset of the contract, BEGIN included: such a one is kept as the client wrote it."""
        return self.timestamp is None and not self.shift and not self.is_end

    @property
    def is_general(self) -> bool:
        """Whether it means something in every partition."""
        return self.timestamp is not None or self.is_end or (self.offset or "").upper() == BEGIN


def violations(named: CursorSpec, path: str) -> Iterator[tuple[str, str]]:
    """Violations of a spec by itself: pairs of a member, prefixed with `path`, and a message."""
    missing = "must not be null"
    if not named.partition and not (named.partition is None and named.is_general):
        yield f"{path}.partition", missing
    if named.timestamp is None and not named.offset:
        yield f"{path}.offset", missing
    yield from timestamp_violations(named, path)
    if not named.event_type and not (named.event_type is None and named.partition is None and named.is_general):
        yield f"{path}.event_type", missing


def timestamp_violations(named: CursorSpec, path: str) -> Iterator[tuple[str, str]]:
    """Violations of a spec's timestamp, if it has one."""
    if named.timestamp is None:
        return
    if named.offset is not None:
        yield f"{path}.timestamp", "must not be given together with offset"
    elif parsed_ms(named.timestamp) is None:
        yield f"{path}.timestamp", MESSAGES[DATE_TIME]


def for_each_partition(
    names: Sequence[CursorSpec], partitions: Mapping[str, int]
) -> Iterator[tuple[tuple[str, str], CursorSpec]]:
    """Yield the places with an event type and partition each, preceded by both as a pair.

    Args:
        names: without violations.
        partitions: how many each event type has. Other event types stay as they are, if a partition is named too.

    Raises:
        Invalid: several names are for all partitions of the same event types.
    """
    general = [named.event_type for named in names if named.partition is None]
    if len(set(general)) < len(general):
        raise Invalid("there should be no more than 1 cursor for all partitions of the same event types")
    for named in names:
        for event_type in partitions if named.event_type is None else (named.event_type,):
            numbers = map(str, range(partitions.get(event_type, 0)))
            for partition in numbers if named.partition is None else (named.partition,):
                one = msgspec.structs.replace(named, event_type=event_type, partition=partition)
                yield (event_type, partition), one
