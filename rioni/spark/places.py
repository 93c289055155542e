"""Where a read begins and ends: the places that options, times and subscriptions name in each partition."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import quote

from rioni.domain.errors import Conflict, Invalid, InvalidCursor
from rioni.domain.schemas import strict_json
from rioni.domain.timelines.position import TimelinePosition
from rioni.domain.timestamps import parsed
from rioni.lake.broker import Partition, place
from rioni.spark.options import Options
from rioni.tools.api_client import call


SHIFTS_MAX = 1_000
"""Items of a request for shifted cursors."""

Places = dict[str, dict[str, TimelinePosition]]
"""The last place read, by event type and partition."""


class Locator:
    """Finds places; every call asks the broker and blocks until it answers. For one look: it remembers what to read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._server = options.server()
        self.broker = options.broker()

    @cached_property
    def event_types(self) -> tuple[str, ...]:
        """The event types to read.

        Raises:
            Invalid: no option names any.
        """
        if self._options.event_types:
            return self._options.event_types
        if self._options.subscription is None:
            raise Invalid("Name what to read by the option event_type, or by the option subscription.")
        _, answer = call(self._server, "GET", self._subscription())
        return tuple(sorted(answer["event_types"]))

    def identities(self, names: Iterable[str]) -> dict[str, str]:
        """When each event type was created, which tells it from others that had its name."""
        return {name: self.broker.event_type(name).identity for name in names}

    def starts(self) -> Places:
        """The places behind which the read begins: the cursors of the subscription, else those of `from`."""
        committed = self._committed() if self._options.subscription else {}
        return {
            name: self._of_option(name, self._options.start, "from") | committed.get(name, {})
            for name in self.event_types
        }

    def ends(self) -> Places:
        """The places up to which the read goes, by the option `to`."""
        return {name: self._of_option(name, self._options.end, "to") for name in self.event_types}

    def shifted(self, name: str, partition: str, after: TimelinePosition, shifts: list[int]) -> list[TimelinePosition]:
        """The places so many events behind another one, in the same timeline or later ones."""
        found = []
        for first in range(0, len(shifts), SHIFTS_MAX):
            items = [
                {"partition": partition, "offset": after.offset, "shift": shift}
                for shift in shifts[first : first + SHIFTS_MAX]
            ]
            found += [place(each["offset"]) for each in self._shift(name, items)]
        return found

    def commit(self, places: Places) -> None:
        """Set the cursors of the subscription; this ends its streams."""
        items = [
            {"event_type": name, "partition": partition, "offset": at.offset}
            for name, partitions in places.items()
            for partition, at in partitions.items()
        ]
        call(self._server, "PATCH", f"{self._subscription()}/cursors", {"items": items}, repeatable=True)

    def _of_option(self, name: str, text: str, option: str) -> dict[str, TimelinePosition]:
        partitions = {each.name: each for each in self.broker.partitions(name)}
        if text.lower() == "begin":
            return {each.name: each.before_oldest for each in partitions.values()}
        if text.lower() == "end":
            return {each.name: each.newest for each in partitions.values()}
        if text.startswith("{"):
            return (
                self._of_offsets(partitions, text, option) if option == "from" else self._to_offsets(partitions, text)
            )
        try:
            given = parsed(text)
        except (ValueError, OverflowError) as ex:
            raise Invalid(
                f"{option} is {text}, but must be begin, end, an RFC 3339 time, or a JSON object with offsets."
            ) from ex
        if given.tzinfo is None:
            raise Invalid(f"{option} is {text}, a time without an offset from UTC; add Z or +01:00.")
        items = [{"partition": each, "timestamp": given.isoformat(), "shift": 0} for each in partitions]
        return {each["partition"]: place(each["offset"]) for each in self._shift(name, items)}

    def _of_offsets(self, partitions: Mapping[str, Partition], text: str, option: str) -> dict[str, TimelinePosition]:
        """Offsets by partition; a partition that is not named is read from its beginning."""
        given = _offsets(partitions, text, option)
        return {name: given.get(name, each.before_oldest) for name, each in partitions.items()}

    def _to_offsets(self, partitions: Mapping[str, Partition], text: str) -> dict[str, TimelinePosition]:
        given = _offsets(partitions, text, "to")
        return {name: given.get(name, each.newest) for name, each in partitions.items()}

    def _shift(self, name: str, items: list[dict[str, Any]]) -> list[dict[str, str]]:
        path = f"/event-types/{quote(name, safe='')}/shifted-cursors"
        _, answer = call(self._server, "POST", path, items, repeatable=True)
        return list(answer)

    def _committed(self) -> Places:
        # An empty list gives the subscription its cursors if it has none yet, and changes nothing otherwise.
        call(self._server, "PATCH", f"{self._subscription()}/cursors", {"items": []}, repeatable=True)
        _, answer = call(self._server, "GET", f"{self._subscription()}/cursors")
        found: Places = {}
        for each in answer["items"]:
            found.setdefault(each["event_type"], {})[each["partition"]] = place(each["offset"])
        return found

    def _subscription(self) -> str:
        return f"/subscriptions/{quote(self._options.subscription or '', safe='')}"


def _offsets(partitions: Mapping[str, Partition], text: str, option: str) -> dict[str, TimelinePosition]:
    try:
        offsets = strict_json.decode(text)
    except strict_json.JsonError as ex:
        raise Invalid(f"{option} must be a JSON object of offsets by partition, but is {text}: {ex}.") from ex
    given = {}
    for name, offset in offsets.items():
        try:
            given[name] = place(str(offset))
        except (InvalidCursor, AssertionError) as ex:
            raise Invalid(f"{option} names {offset} in partition {name}, which is no offset of an event.") from ex
    if unknown := sorted(given.keys() - partitions.keys()):
        raise Invalid(f"{option} names partitions that do not exist: {', '.join(unknown)}.")
    check_not_ahead(given, partitions, f"The option {option}")
    return given


def check_not_ahead(places: Mapping[str, TimelinePosition], partitions: Mapping[str, Partition], whose: str) -> None:
    """Check that no place lies behind the end of its partition: events published up to there would be skipped.

    Raises:
        Conflict: one does.
    """
    for name, at in places.items():
        each = partitions.get(name)
        if each is not None and at > max(each.newest, each.before_oldest):
            raise Conflict(
                f"{whose} stands at {at.offset} of partition {name}, which ends at {each.newest.offset}: was the event "
                "type created again, or the broker restored from a backup? Begin anew."
            )
