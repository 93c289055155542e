"""Reads the forms that pages send, in bounded time and memory."""

import time
from collections.abc import Callable, Iterator

import falcon


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
    """Reads forms, of all together a bounded number of bytes at once."""

    def __init__(self) -> None:
        self._held = 0

    def read(self, req: falcon.Request, *, logged_in: bool) -> dict[str, str]:
        """The members of a form, of which the last value of a name counts; blocks until it has come.

        Raises:
            HTTPBadRequest: it is not a form, or not whole.
            HTTPContentTooLarge: it is larger than the user may send.
            HTTPError: it comes too slowly (408).
            HTTPServiceUnavailable: others send large forms.
        """
        length, most = req.content_length or 0, FORM_BYTES_MAX if logged_in else LOGIN_BYTES_MAX
        if length > most:
            raise falcon.HTTPContentTooLarge(description=f"A form may have {most:,} bytes.")
        if length > LOGIN_BYTES_MAX and self._held + length > READING_BYTES_MAX:
            raise falcon.HTTPServiceUnavailable(description="Others send large forms. Try again.", retry_after=1)
        self._held += length
        try:
            body = b"".join(_pieces(req.env["wsgi.input"].read, length))
        except TimeoutError as ex:
            raise falcon.HTTPError(falcon.HTTP_408, description="The form came too slowly.") from ex
        finally:
            self._held -= length
        if len(body) < length:
            raise falcon.HTTPBadRequest(description="The form is not whole.")
        return _members(body)


def _pieces(read: Callable[[int], bytes], length: int) -> Iterator[bytes]:
    while length > 0 and (piece := read(min(length, READ_BYTES))):
        yield piece
        length -= len(piece)
        if length:
            time.sleep(BREATH_S)


def _members(body: bytes) -> dict[str, str]:
    if body.count(b"&") >= FIELDS_MAX:
        raise falcon.HTTPBadRequest(description=f"A form may have {FIELDS_MAX:,} fields.")
    if b"\\" in body:
        raise falcon.HTTPBadRequest(description="This is not a form: it has a backslash that is not quoted.")
    try:
        pairs = (field.partition("=") for field in body.decode("ascii").split("&") if field)
        return {_decoded(name): _decoded(value) for name, _, value in pairs}
    except UnicodeError as ex:
        raise falcon.HTTPBadRequest(description=f"This is not a form: {ex}") from ex


def _decoded(text: str) -> str:
    # PERF: 20 to 50 ms for the longest form, where `unquote_plus` takes 280 ms, in which the worker does nothing else.
    escaped = text.replace("+", " ").replace("%", "\\x")
    return escaped.encode().decode("unicode_escape").encode("latin-1").decode(errors="replace")
