"""The base of the parts of the API that a client has: requests for one thing, for lists, and for pages of lists."""

from collections.abc import AsyncIterator, Mapping
from itertools import count
from typing import Any, TypeVar

from rioni.client._async.transport import Transport
from rioni.wire.pages import Items, Page


PAGE = 1_000
T = TypeVar("T")


class Resource:
    """Makes the requests for a part of the API."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def _items(self, kind: type[T], template: str, **request: Any) -> list[T]:
        """A list of the API, as a whole."""
        return (await self._transport.fetch(Items[kind], "GET", template, **request)).items  # type: ignore[valid-type]

    async def _numbered(
        self, kind: type[T], template: str, params: Mapping[str, Any], path: Mapping[str, str] | None = None
    ) -> AsyncIterator[T]:
        """The items of a list with numbered places; asks for a page when it is needed."""
        for offset in count(0, PAGE):
            wanted = {**params, "limit": PAGE, "offset": offset}
            page = await self._items(kind, template, path=path, params=wanted)
            for item in page:
                yield item
            if len(page) < PAGE:
                return

    async def _page(
        self, kind: type[T], template: str, params: Mapping[str, Any], path: Mapping[str, str] | None = None
    ) -> tuple[list[T], str | None]:
        """A page of a list with links, and the place after which the next page begins, None on the last page."""
        kind_of_page: type[Page[T]] = Page[kind]  # type: ignore[valid-type]
        page = await self._transport.fetch(kind_of_page, "GET", template, params=params, path=path)
        return page.items, page.links.after()


def flag(value: bool) -> str | None:  # noqa: FBT001 - the only argument
    """The query parameter of a switch; None leaves it out."""
    return "true" if value else None
