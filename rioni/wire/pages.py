"""Links of a page to its neighbours, and problems."""

from typing import Annotated, ClassVar, Generic, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec

from rioni.wire.base import Model, note


T = TypeVar("T")


class Link(Model):
    """The address of a neighbour."""

    COMPONENT: ClassVar[str] = "Hyperlink"

    href: str


class Links(Model):
    """The neighbours that there are."""

    next: Link | None = None
    prev: Link | None = None

    def after(self) -> str | None:
        """The place after which the next page begins; None on the last page."""
        if self.next is None:
            return None
        return next(iter(parse_qs(urlsplit(self.next.href).query).get("after", [])), None)


class Items(msgspec.Struct, Generic[T]):
    """A list, as a whole."""

    items: list[T]


class Page(msgspec.Struct, Generic[T]):
    """A page of a list."""

    items: list[T]
    links: Links = msgspec.field(name="_links", default_factory=Links)


class Violation(Model):
    """A rule that a member of a request breaks."""

    field: str
    message: str


class Problem(Model):
    """The answer to a refused request (RFC 9457)."""

    title: Annotated[str, note("The words for the status.")]
    status: int
    type: Annotated[str | None, note("A URI for the kind of problem; absent for common kinds.")] = None
    detail: Annotated[str | None, note("The reason, and often what to do.")] = None
    violations: list[Violation] | None = None
    event_type: Annotated[str | None, note("The event type of a cursor that can't be read from.")] = None
    partition: Annotated[str | None, note("The partition of this cursor.")] = None
    oldest_available_offset: Annotated[
        str | None, note("The offset of the first event of this partition that can be read.")
    ] = None
    newest_available_offset: Annotated[str | None, note("The offset of its last event.")] = None
