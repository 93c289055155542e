"""Links of a page to its neighbours."""

from urllib.parse import parse_qs, urlsplit

import msgspec


class Link(msgspec.Struct):
    """The address of a neighbour."""

    href: str


class Links(msgspec.Struct):
    """The neighbours that there are."""

    next: Link | None = None

    def after(self) -> str | None:
        """The place after which the next page begins; None on the last page."""
        if self.next is None:
            return None
        return next(iter(parse_qs(urlsplit(self.next.href).query).get("after", [])), None)
