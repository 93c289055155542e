"""Projections of users' own: a function that folds the events of each resource into a row of a table.

A package offers them as entry points of the group `rioni.projections`. The broker keeps their tables up to date in the
transactions that append to the log, and `rioni rebuild` builds them with Spark, by the same function. Spark's executors
import this module: it needs neither SQLAlchemy nor anything that serves requests.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from math import isfinite
from typing import Any, NamedTuple

import msgspec

from rioni.domain.aggregates import AGGREGATES
from rioni.domain.errors import Invalid, RioniError
from rioni.domain.events import realm_of
from rioni.domain.ports.event_log import LogEntry


GROUP = "rioni.projections"
"""The group of the entry points."""
PREFIX = "custom_"
"""The prefix of the names of their tables."""
KEY = "resource"
"""The column with the primary key of each table."""

PROJECTIONS_MAX = 32
COLUMNS_MAX = 64
TYPES = (str, int, float, bool)

INTEGER_END = 2**63

_SURROGATES = re.compile("[\ud800-\udfff]")
_NAME = re.compile("[a-z][a-z0-9_]{0,19}")
_COLUMN = re.compile("[a-z][a-z0-9_]{0,49}")

Row = Mapping[str, Any]


class Event(NamedTuple):
    """An entry of the internal log, as the functions of users see it."""

    position: int
    """The position in the log, from 1."""
    recorded_at: str
    """RFC 3339 in UTC, with milliseconds."""
    actor: str
    """The name of who did it."""
    kind: str
    """The topic, such as `event-type.created`."""
    resource: str
    """The key of the resource, such as the name of an event type."""
    data: Mapping[str, Any]
    """The content of the event, as it is in the log."""
    realm: str = ""
    """The realm of the actor, who may have namesakes in other realms; empty if there is none."""


Fold = Callable[[Row | None, Event], Row | None]
"""Takes the row of a resource, None if it has none, and its next event; returns the next row, None for no row.

It must give the same row for the same events, at any time and in any process.
"""


class BrokenProjection(RioniError):
    """The function of a projection failed, or gave something that is no row of its table."""


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """A projection defined by a user.

    Args:
        name: the projection's name; its table has `custom_` before it. Up to 20 small letters, digits and underscores.
        version: the version of the function: raise it with every change of its results, so that the table is built
            anew.
        resources: the kinds of resources whose events it sees, such as `event-type` and `subscription`.
        columns: their types: `str`, `int`, `float` or `bool`. All may be null. The column `resource` with the kind and
            the key, `event-type:order.created`, comes first by itself.
        fold: the function.

    Raises:
        Invalid: a name or a type can't be used; the message names it.
    """

    name: str
    version: int
    resources: Collection[str]
    columns: Mapping[str, type]
    fold: Fold

    def __post_init__(self) -> None:
        """Check all names and types."""
        if not _NAME.fullmatch(self.name):
            raise Invalid(
                f"{self.name!r} can't be the name of a projection: up to 20 small letters, digits and underscores"
            )
        if self.version < 1:
            raise Invalid(f"The version of the projection {self.name} is not a positive integer")
        if unknown := set(self.resources) - set(AGGREGATES):
            raise Invalid(f"The projection {self.name} names unknown resources: {', '.join(sorted(unknown))}")
        wrong = [name for name, kind in self.columns.items() if not _COLUMN.fullmatch(name) or kind not in TYPES]
        if wrong or KEY in self.columns or not 0 < len(self.columns) <= COLUMNS_MAX:
            raise Invalid(
                f"The projection {self.name} needs 1 to {COLUMNS_MAX} columns of str, int, float or bool, with names "
                f"of small letters, digits and underscores, none of them {KEY}: {', '.join(wrong) or len(self.columns)}"
            )

    @property
    def table(self) -> str:
        """The name of its table."""
        return PREFIX + self.name

    def next_row(self, before: Row | None, entry: LogEntry) -> Row | None:
        """Fold an entry: from the row of its resource to the next row, None for none.

        Raises:
            BrokenProjection: the function failed, or its result does not fit the columns.
        """
        origin, event = entry.origin, entry.event
        shown = Event(
            entry.position,
            origin.recorded_at,
            origin.actor,
            event.TOPIC,
            event.key,
            msgspec.json.decode(event.encode()),
            realm_of(origin.client),
        )
        state = None if before is None else {name: before[name] for name in self.columns}
        where = f"The projection {self.name} failed at position {entry.position} of the log"
        try:
            after = self.fold(state, shown)
            after = None if after is None else dict(after)
        except Exception as ex:
            raise BrokenProjection(f"{where}: {type(ex).__name__}: {ex}") from ex
        if after is None:
            return None
        if after.keys() != self.columns.keys():
            raise BrokenProjection(f"{where}: it has to return None or a value for each of {', '.join(self.columns)}")
        for name, kind in self.columns.items():
            if not _fits(after[name], kind):
                raise BrokenProjection(f"{where}: {name} is not null and no {kind.__name__}: {after[name]!r:.100}")
        return {KEY: resource_of(entry), **after}

    def follows(self, entry: LogEntry) -> bool:
        """Whether it sees an entry."""
        return entry.event.kind in self.resources


def _fits(value: object, kind: type) -> bool:
    """Whether both databases can store a value as it is."""
    if value is None:
        return True
    if isinstance(value, str):
        return kind is str and "\0" not in value and not _SURROGATES.search(value)
    if isinstance(value, float):
        return kind is float and isfinite(value)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int) and kind is int and -INTEGER_END <= value < INTEGER_END


def resource_of(entry: LogEntry) -> str:
    """The primary key of the row that an entry changes."""
    return f"{entry.event.kind}:{entry.event.key}"


@cache
def installed() -> Sequence[Projection]:
    """All projections that installed packages offer, by name.

    Raises:
        Invalid: an entry point can't be loaded or is no projection, two have one name, or there are too many.
    """
    found: dict[str, Projection] = {}
    for entry_point in entry_points(group=GROUP):
        try:
            projection = entry_point.load()
        except Exception as ex:
            raise Invalid(f"The projection {entry_point.value} can't be loaded: {type(ex).__name__}: {ex}") from ex
        if not isinstance(projection, Projection):
            raise Invalid(f"{entry_point.value} is no projection: make it with rioni.projections.custom.Projection")
        if found.setdefault(projection.name, projection) is not projection:
            raise Invalid(f"Two installed packages offer a projection named {projection.name}.")
    if len(found) > PROJECTIONS_MAX:
        raise Invalid(f"There are {len(found)} projections installed; {PROJECTIONS_MAX} are allowed.")
    return [found[name] for name in sorted(found)]
