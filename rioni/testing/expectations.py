"""The events that have been published, and whether they are those that a test expects."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from rioni.client import Client, Cursor


SHOWN_MAX = 10
"""Events that a failed expectation shows."""
SHOWN_CHARACTERS = 500
"""The most characters of each of them that are shown."""
LOOK_EVERY_S = 0.02

Event = dict[str, Any]
Match = Mapping[str, Any] | Callable[[Event], object] | None
"""Members that an event must have, or a function that returns whether an event is meant; None for all events."""


def matches(value: Any, wanted: Any) -> bool:
    """Whether a value is the wanted one: an object may have further members, a function decides by itself."""
    if callable(wanted):
        return bool(wanted(value))
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        return all(name in value and matches(value[name], each) for name, each in wanted.items())
    if isinstance(wanted, list | tuple) and isinstance(value, list):
        return len(value) == len(wanted) and all(map(matches, value, wanted))
    return bool(value == wanted)


class EventReader:
    """Reads an event type, all partitions, from the beginning or after some cursors."""

    def __init__(self, client: "Client", event_type: str, after: Sequence["Cursor"] = ()) -> None:
        self._client, self._event_type = client, event_type
        self._offsets = {cursor.partition: cursor.offset for cursor in after}
        self._newest: list[str] = []
        self.exists = False
        """Whether there was such an event type at the last reading."""

    def read(self) -> list[Event]:
        """Return the events since the last call, in the order of each partition; raises ClientError."""
        import msgspec  # noqa: PLC0415 - PERF: only tests that use a broker pay for the client

        from rioni.client import Cursor  # noqa: PLC0415 - as above
        from rioni.client.values import number  # noqa: PLC0415 - as above

        self.exists = False
        partitions = self._client.partitions.list(self._event_type)
        self.exists = True
        newest = [each.newest_available_offset for each in partitions]
        if newest == self._newest:
            return []
        self._newest = newest
        offsets = {each.partition: self._offsets.get(each.partition, "BEGIN") for each in partitions}
        cursors = [Cursor(partition=partition, offset=offset) for partition, offset in offsets.items()]
        counted = self._client.partitions.list(self._event_type, cursors=cursors)
        count = sum(each.unconsumed_events or 0 for each in counted)
        decode = msgspec.json.Decoder(dict[str, Any], float_hook=number).decode
        events: list[Event] = []
        if count == 0:
            return events
        # Compacted events are counted and never come: a partition that is silent for a second has no more.
        stream = self._client.events(
            self._event_type,
            cursors=cursors,
            batch_limit=1,
            stream_limit=count,
            batch_flush_timeout=1,
            stream_keep_alive_limit=1,
        )
        for batch in stream:
            events += map(decode, batch.events)
            self._offsets[batch.cursor.partition] = batch.cursor.offset
        return events


def expect(reader: EventReader, event_type: str, match: Match, *, count: int | None, within_s: float) -> list[Event]:
    """Wait for events that match; see `Broker.expect`."""
    from rioni.client import NotFound  # noqa: PLC0415 - as above

    __tracebackhide__ = True
    until_s = time.monotonic() + within_s
    came: list[Event] = []
    while True:
        # The code under test may still be about to create it.
        with contextlib.suppress(NotFound):
            came += reader.read()
        found = [event for event in came if match is None or matches(event, match)]
        late = time.monotonic() >= until_s
        if count is None and found:
            return found
        if count is not None and len(found) > count:
            break
        if count is not None and len(found) == count and (count or late):
            return found
        if late:
            break
        time.sleep(LOOK_EVERY_S)
    wanted = "an event" if count is None else f"{count} event{'' if count == 1 else 's'}"
    like = "" if match is None else f" like {_shown_match(match)}"
    raise AssertionError(
        f"Expected {wanted} of {event_type}{like} within {within_s:g} s; {len(found)} came. {_came(came, reader)}"
    )


def _came(came: Sequence[Event], reader: EventReader) -> str:
    if not came:
        return "Nothing else was published to it." if reader.exists else "There is no event type of this name."
    shown = "\n".join(f"  {_shown(event)}" for event in came[-SHOWN_MAX:])
    which = f"The last {SHOWN_MAX} of all {len(came)}" if len(came) > SHOWN_MAX else f"All {len(came)}"
    return f"{which} that were published to it:\n{shown}"


def _shown_match(match: Match) -> str:
    return _shown(match) if isinstance(match, Mapping) else getattr(match, "__name__", repr(match))


def _shown(value: Any) -> str:
    import msgspec  # noqa: PLC0415 - PERF: as above

    encoder = msgspec.json.Encoder(
        decimal_format="number", enc_hook=lambda each: f"<{getattr(each, '__name__', repr(each))}>"
    )
    text = msgspec.json.format(encoder.encode(value), indent=0).decode()
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
