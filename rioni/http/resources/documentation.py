"""`/openapi.json` and `/docs`: the description of the API, for machines and for people."""

import functools

import falcon
import orjson

from rioni.domain.ports.thread_pool import ThreadPool
from rioni.http.openapi.document import document
from rioni.http.openapi.page import POLICY, render


# PERF: the page takes 40 ms on the first request; the document a tenth of that.
@functools.cache
def _page() -> bytes:
    return render(document()).encode()


@functools.cache
def _description() -> bytes:
    return orjson.dumps(document())


class OpenApiResource:
    """`/openapi.json`."""

    def __init__(self, pool: ThreadPool) -> None:
        self._pool = pool

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Show the description."""
        resp.data = self._pool(_description)


class DocsResource:
    """`/docs`."""

    def __init__(self, pool: ThreadPool) -> None:
        self._pool = pool

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Show the description as a page that runs nothing and loads nothing."""
        resp.content_type = "text/html; charset=utf-8"
        resp.set_header("Content-Security-Policy", POLICY)
        resp.set_header("X-Content-Type-Options", "nosniff")
        resp.set_header("Referrer-Policy", "no-referrer")
        resp.data = self._pool(_page)
