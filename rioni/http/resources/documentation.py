"""`/openapi.json` and `/docs`: the description of the API, for machines and for people."""

import functools

import falcon
import orjson

from rioni.domain.ports.thread_pool import ThreadPool
from rioni.files import templates
from rioni.http.openapi.document import document
from rioni.http.openapi.page import POLICY, render


BASE_PATHS_CACHED = 8
"""Each takes 0.5 MB."""


# PERF: the page takes 40 ms on the first request; the document a tenth of that.
@functools.lru_cache(BASE_PATHS_CACHED)
def _page(base_path: str) -> bytes:
    return render(document(base_path), base_path).encode()


@functools.lru_cache(BASE_PATHS_CACHED)
def _description(base_path: str) -> bytes:
    return orjson.dumps(document(base_path))


class OpenApiResource:
    """`/openapi.json`."""

    def __init__(self, pool: ThreadPool) -> None:
        self._pool = pool

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Show the description."""
        resp.data = self._pool(_description, req.root_path)
        req.context.answers_all = True


class DocsResource:
    """`/docs`."""

    def __init__(self, pool: ThreadPool) -> None:
        self._pool = pool

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Show the description as a page that runs nothing and loads nothing."""
        resp.content_type = "text/html; charset=utf-8"
        resp.set_header("Content-Security-Policy", POLICY)
        resp.set_header("X-Content-Type-Options", "nosniff")
        resp.set_header("Referrer-Policy", "no-referrer")
        templates.load()
        resp.data = self._pool(_page, req.root_path)
        req.context.answers_all = True
