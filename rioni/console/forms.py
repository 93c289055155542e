"""Reads the forms that pages send, in bounded time and memory."""

import time
from collections import Counter
from collections.abc import Callable, Iterator

import falcon

from rioni.console.api import Compute, in_place


FORM_BYTES_MAX = 2_500_000
"""An event type with a schema as large as the API takes, quoted as forms are."""
LOGIN_BYTES_MAX = 65_536
"""Of forms of those who are not logged in."""
FIELDS_MAX = 100
READING_BYTES_MAX = 50_000_000
"""Of larger forms than that, all together, in a worker."""
READ_BYTES = 65_536
"""PERF: gunicorn copies what it has received and not passed on yet, so larger pieces take longer."""
BREATH_S = 0.001
"""After each piece others go on. PERF: together 40 ms of the longest form."""


class Forms:
    """Reads forms, of all together a bounded number of bytes at once; `compute` decodes large ones."""

    def __init__(self, compute: Compute = in_place) -> None:
        self._of_clients, self._compute = Counter[str](), compute

    def read(self, req: falcon.Request, client: str, *, logged_in: bool) -> dict[str, str]:
        """The members of a form; blocks until it has come.

        Args:
            req: with the form.
            client: for whom its bytes are counted.
            logged_in: whether it may be large.

        Raises:
            HTTPBadRequest: it is not a form, not whole, or has a field twice.
            HTTPContentTooLarge: it is larger than the user may send.
            HTTPError: it comes too slowly (408).
            HTTPServiceUnavailable: the client, or all of them, send large forms.
        """
        length, most = req.content_length or 0, FORM_BYTES_MAX if logged_in else LOGIN_BYTES_MAX
        if length > most:
            raise falcon.HTTPContentTooLarge(description=f"A form may have {most:,} bytes.")
        held = length if length > LOGIN_BYTES_MAX else 0
        # As with bodies of the API: a client that holds all it can leaves as much room for others.
        free = READING_BYTES_MAX - self._of_clients.total()
        if held and self._of_clients[client] + held > min(free, READING_BYTES_MAX // 2):
            whose = "of this client" if self._of_clients[client] else "of others"
            raise falcon.HTTPServiceUnavailable(
                description=f"Too many large forms {whose} are being read. Try again.", retry_after=1
            )
        self._of_clients[client] += held
        try:
            body = b"".join(_pieces(req.env["wsgi.input"].read, length))
        except TimeoutError as ex:
            raise falcon.HTTPError(falcon.HTTP_408, description="The form came too slowly.") from ex
        finally:
            self._of_clients[client] -= held
            if not self._of_clients[client]:
                del self._of_clients[client]
        if len(body) < length:
            raise falcon.HTTPBadRequest(description="The form is not whole.")
        return self._compute(_members, body) if length > LOGIN_BYTES_MAX else _members(body)


def _pieces(read: Callable[[int], bytes], length: int) -> Iterator[bytes]:
    while length > 0 and (piece := read(min(length, READ_BYTES))):
        yield piece
        length -= len(piece)
        if length:
            time.sleep(BREATH_S)


def _members(body: bytes) -> dict[str, str]:
    # PERF: 40 ms of the longest form.
    if body.count(b"&") >= FIELDS_MAX:
        raise falcon.HTTPBadRequest(description=f"A form may have {FIELDS_MAX:,} fields.")
    if b"\\" in body:
        raise falcon.HTTPBadRequest(description="This is not a form: it has a backslash that is not quoted.")
    try:
        pairs = [field.partition("=") for field in body.decode("ascii").split("&") if field]
        members = {_decoded(name): _decoded(value) for name, _, value in pairs}
    except UnicodeError as ex:
        raise falcon.HTTPBadRequest(description=f"This is not a form: {ex}") from ex
    if len(members) < len(pairs):
        raise falcon.HTTPBadRequest(description="The form has a field twice.")
    return members


def _decoded(text: str) -> str:
    # PERF: 20 to 50 ms for the longest form, where `unquote_plus` takes 280 ms, in which the worker does nothing else.
    escaped = text.replace("+", " ").replace("%", "\\x")
    return escaped.encode().decode("unicode_escape").encode("latin-1").decode()
