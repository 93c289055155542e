"""Streams the audit trail as JSON lines: page by page, so that memory and transactions stay small."""

import time
from collections.abc import Callable
from typing import Self

import orjson

from rioni.http.audit_entries import rendered
from rioni.http.caller import Caller
from rioni.http.dependencies import Dependencies
from rioni.projections.queries import audit_pages
from rioni.projections.queries.audit_pages import AuditQuery, Place


NDJSON = "application/x-ndjson"
ENTRIES_PER_PAGE = 250
EXPORT_S = 3_600
"""How long an export may take; what is left is named in a last line."""


class AuditExport:
    """The body of an answer; it runs in the greenlet of its request.

    A client that stops reading blocks the server's write between two pages: no transaction is open and no thread is
    held then, and the server's deadline on its sockets ends it.
    """

    def __init__(
        self,
        dependencies: Dependencies,
        wanted: AuditQuery,
        place: Place,
        caller: Caller,
        client: str,
        href: Callable[[int], str],
        *,
        states: bool,
    ) -> None:
        """Start with nothing read.

        Args:
            dependencies: of the process.
            wanted: the filters.
            place: where to begin, and the order.
            caller: whose rights are checked again before each page.
            client: what it counts for.
            href: where the entries after a position are.
            states: whether to show both states of each entry.
        """
        self._dependencies, self._wanted, self._states = dependencies, wanted, states
        self._place: Place | None = place
        self._caller, self.client, self._href = caller, client, href
        self._started = False
        self._ends_at_s = dependencies.clock.monotonic() + EXPORT_S

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        """Read the next page that is not empty; the first item is empty, as of all streams."""
        if not self._started:
            self._started = True
            return b""
        while (place := self._place) is not None:
            # An export that is never waited for must let other greenlets run.
            time.sleep(0)
            if place.after is not None and self._must_end():
                self._place = None
                return orjson.dumps({"_links": {"next": {"href": self._href(place.after)}}}) + b"\n"
            page = self._dependencies.query(audit_pages.page, self._wanted, place, ENTRIES_PER_PAGE)
            self._place = None if page.next is None else Place(place.ascending, after=page.next)
            if page.rows:
                lines = self._dependencies.compute_pool(rendered, page.rows, states=self._states)
                return b"\n".join((*lines, b""))
        raise StopIteration

    def close(self) -> None:
        """Read no further."""
        self._place = None

    def _must_end(self) -> bool:
        dependencies = self._dependencies
        return (
            dependencies.clock.monotonic() >= self._ends_at_s
            or dependencies.stopping.is_set()
            or self._caller.is_expired()
            or not dependencies.access.may(self._caller.subject, "HISTORY")
        )
