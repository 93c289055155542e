"""The keyword arguments by which methods of a client select event types and dead letters."""

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from rioni.wire.events import Cursor
from rioni.wire.subscriptions import SubmittedAfter, SubmittedRedrive


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
    members: dict[str, Any] = {"force": False, **selection}
    if (after := selection.get("after")) is not None:
        members["after"] = SubmittedAfter(partition=after.partition, offset=after.offset)
    return SubmittedRedrive(**members).members()
