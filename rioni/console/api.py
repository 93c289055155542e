"""The broker's own API, called in this process with the rights of the browser's user.

The console has no other way to the broker: a client of the API could show and change the same.
"""

import contextlib
import io
import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote, urlencode

import orjson

from rioni.console import exact_json


Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Compute = Callable[..., Any]
"""Calls a function with arguments so that it blocks nobody else: `compute(function, *arguments)`."""

HISTORICAL = ("/event-types", "/subscriptions", "/settings", "/storages")
"""The beginnings of paths that can be read as of an earlier time."""
NOT_HISTORICAL = ("stats", "ended-streams", "events", "cursors", "partitions", "producers", "consumers", "dead-letters")
"""The endings of paths below them that show only the present."""
PATH_BYTES_MAX = 4_000
"""The server takes 4,094 bytes of a line of a request; names from forms would pass by that."""
# Headers of the browser that are meant for the console; and variables that the WSGI server made for the browser's body.
_OWN = frozenset(
    (
        "HTTP_ACCEPT",
        "HTTP_ACCEPT_ENCODING",
        "HTTP_AUTHORIZATION",
        "HTTP_CONTENT_ENCODING",
        "HTTP_COOKIE",
        "HTTP_IF_MATCH",
        "HTTP_IF_NONE_MATCH",
        "HTTP_LAST_EVENT_ID",
        "HTTP_ORIGIN",
        "HTTP_TRANSFER_ENCODING",
        "CONTENT_LENGTH",
        "CONTENT_TYPE",
        "wsgi.input",
        "wsgi.input_terminated",
    )
)


DECODED_AT_ONCE_BYTES_MAX = 100_000
"""The largest body that is decoded at once. PERF: decoding it takes 1 ms at most."""
_LIST = re.compile(r'\s*(\{\s*"items"\s*:\s*)?\[\s*')
_NEXT = re.compile(r"\s*,\s*")
_WARNING = re.compile(r'(?:^|, )299 rioni "(.*?)"(?=$|, 299 )')
_END = re.compile(r"\s*\]\s*")


def in_place(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call it here, in processes that serve nobody else."""
    return function(*arguments)


def decoded(content: bytes) -> Any:
    """The value of JSON that the API has written.

    PERF: of a list, or an object that begins with `items`, each item is decoded on its own: while 50 event types of
    250 kB were decoded in one call, no other thread could run for 15 ms.
    """
    text = content.decode()
    begin = _LIST.match(text)
    if begin is None or _END.match(text, begin.end()):
        return exact_json.decode(content)
    items, at = [], begin.end()
    while True:
        item, end = exact_json.decode_at(text, at)
        items.append(item)
        if (following := _NEXT.match(text, end)) is None:
            break
        at = following.end()
    closed = _END.match(text, end)
    assert closed is not None, "an answer of the API is no JSON"
    # The text after the items is short.
    return {"items": items} | json.loads("{" + text[closed.end() :].lstrip(",")) if begin[1] else items


class ApiProblem(Exception):
    """The API refused a request."""

    def __init__(self, status: int, members: Mapping[str, Any]) -> None:
        self.status = status
        self.title = str(members.get("title", HTTPStatus(status).phrase))
        self.detail = str(members.get("detail") or "").strip()
        self.members = members
        super().__init__(self.detail or self.title)

    def as_object(self) -> dict[str, Any]:
        """The object that is shown instead of the answer."""
        return {"problem": {"status": self.status, "title": self.title, "detail": self.detail}}

    def in_place(self) -> dict[str, Any]:
        """The object that is shown instead of a part of a page; raises this refusal if the user has to log in again."""
        if self.status == HTTPStatus.UNAUTHORIZED:
            raise self
        return self.as_object()


@dataclass(frozen=True)
class ApiAnswer:
    """An answer of the API."""

    status: int
    headers: Mapping[str, str]
    """The headers by their names in lower case."""
    content: bytes
    compute: Compute = in_place

    @property
    def warnings(self) -> Sequence[str]:
        """The warnings of the broker, without the constant ones of each change."""
        return _WARNING.findall(self.headers.get("warning", ""))

    def json(self) -> Any:
        """The JSON of the body; None if it is empty. Blocks the caller alone."""
        if len(self.content) <= DECODED_AT_ONCE_BYTES_MAX:
            return exact_json.decode(self.content) if self.content else None
        return self.compute(decoded, self.content)


class Api:
    """Makes requests to the API on behalf of one request of a browser."""

    def __init__(
        self,
        app: Wsgi,
        environ: Mapping[str, Any],
        token: str | None,
        as_of: str | None = None,
        compute: Compute = in_place,
    ) -> None:
        self._app, self._token, self._as_of, self.compute = app, token, as_of, compute
        kept = {name: value for name, value in environ.items() if name not in _OWN and "SEC_FETCH" not in name}
        self._environ = {
            **kept,
            "HTTP_USER_AGENT": f"rioni-console {environ.get('HTTP_USER_AGENT', '')}",
        }

    def get(self, path: str, **params: Any) -> Any:
        """The JSON of an answer; as it was then if the console shows the past.

        Args:
            path: quoted if names are in it, see `path_of`.
            params: of the query; None leaves one out, lists are repeated.

        Raises:
            ApiProblem: the API refused it.
        """
        if self._as_of is not None and _is_historical(path):
            params.setdefault("as_of", self._as_of)
        return self.send("GET", path, params=params).json()

    def attempt(self, path: str, **params: Any) -> Any:
        """Do as `get`, but return a refusal as an object with a member `problem`, which the page shows in its place.

        Raises:
            ApiProblem: the token is not valid any more, so that nothing of the page can be shown.
        """
        try:
            return self.get(path, **params)
        except ApiProblem as ex:
            return ex.in_place()

    def attempt_text(self, path: str) -> Any:
        """Do as `attempt`, for an answer that is text."""
        try:
            return self.send("GET", path, headers={"Accept": "*/*"}).content.decode()
        except ApiProblem as ex:
            return ex.in_place()

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> ApiAnswer:
        """Make a request; raises ApiProblem if it is refused.

        Args:
            method: the verb.
            path: as for `get`.
            params: as for `get`.
            body: sent as JSON; bytes as they are; None for no body.
            headers: further ones.
        """
        status, answered, pieces = self.open(method, path, params=params, body=body, headers=headers)
        content = b"".join(pieces)
        if status >= HTTPStatus.BAD_REQUEST:
            raise ApiProblem(status, _members(content))
        return ApiAnswer(status, answered, content, self.compute)

    def open(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Mapping[str, str], Iterator[bytes]]:
        """Make a request whose answer is read in pieces, such as a stream; close the iterator.

        Raises:
            ApiProblem: the path is longer than any that a client could send.
        """
        if len(path) > PATH_BYTES_MAX:
            detail = f"The names are too long: an address may have {PATH_BYTES_MAX:,} bytes."
            raise ApiProblem(HTTPStatus.REQUEST_URI_TOO_LONG, {"detail": detail})
        content = body if isinstance(body, bytes) else b"" if body is None else exact_json.encode(body)
        given = {name: value for name, value in (params or {}).items() if value not in (None, "")}
        environ = self._environ | {
            "REQUEST_METHOD": method,
            "PATH_INFO": unquote(path, "latin-1"),
            "RAW_URI": path,
            "QUERY_STRING": urlencode(given, doseq=True),
            "CONTENT_LENGTH": str(len(content)),
            "CONTENT_TYPE": "application/json" if content else "",
            "wsgi.input": io.BytesIO(content),
            "HTTP_ACCEPT": "application/json",
        }
        if self._token is not None:
            environ["HTTP_AUTHORIZATION"] = f"Bearer {self._token}"
        environ |= {"HTTP_" + name.upper().replace("-", "_"): value for name, value in (headers or {}).items()}
        begun: list[Any] = []
        pieces = self._app(environ, lambda status, answered, *_: begun.extend((status, answered)))
        iterator = _closing(pieces)
        # An application may begin its answer with the first piece only.
        first = next(iterator, b"") if not begun else b""
        status, answered = begun
        named = {name.lower(): value for name, value in answered}
        return int(status[:3]), named, _chain(first, iterator)


def path_of(*parts: str) -> str:
    """The path of these parts, each of which may hold any character."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def _is_historical(path: str) -> bool:
    return path.startswith(HISTORICAL) and path.rpartition("/")[2] not in NOT_HISTORICAL


def _members(content: bytes) -> Mapping[str, Any]:
    try:
        members = orjson.loads(content)
    except orjson.JSONDecodeError:
        members = None
    # Publishing answers with the result of each event.
    return members if isinstance(members, dict) else {"items": members}


def _closing(pieces: Iterable[bytes]) -> Generator[bytes, None, None]:
    try:
        yield from pieces
    finally:
        if close := getattr(pieces, "close", None):
            close()


def _chain(first: bytes, rest: Generator[bytes, None, None]) -> Iterator[bytes]:
    with contextlib.closing(rest):
        if first:
            yield first
        yield from rest
