"""gunicorn, where it has no setting for the classes and functions that it uses.

Reason: requests are parsed with the heads that were parsed before, the listener balances its connections, and each
request saves 40 us. On an upgrade, look at `Request.parse`, which calls `_parse_python` unless the fast parser is
installed and chosen; at `RequestParser.mesg_class` and `finish_body`; and whether `ggevent.StreamServer`,
`util.http_date`, `wsgi.create` and `wsgi.WSGIErrorsWrapper` are still looked up in their modules when they are called.

Versions: gunicorn>=27,<28.
"""

import time
from collections.abc import Callable
from email.utils import formatdate
from functools import cache, lru_cache
from typing import Any

from gunicorn import util
from gunicorn.http import wsgi
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from gunicorn.workers import ggevent


class HookedRequest(Request):  # type: ignore[misc]  # gunicorn has no types
    """A request whose subclass may parse the head in another way."""

    def parse_head(self, unreader: Any, received: bytearray) -> Any:
        """Parse the received bytes, and more from `unreader` if the head is incomplete; returns those after the head.

        Raises:
            ParseException: the head is invalid; gunicorn answers.
        """
        return super()._parse_python(unreader, received)

    def _parse_python(self, unreader: Any, buf: bytearray) -> Any:
        return self.parse_head(unreader, buf)


def use_request_class(kind: type[HookedRequest]) -> None:
    """Have gunicorn parse requests as a class; call it once before gunicorn starts."""
    RequestParser.mesg_class = kind
    # PERF: gunicorn checks for the rest of each body again, which `BrokerWorker.handle_request` has read.
    RequestParser.finish_body = lambda *_: True


def use_functions(new_server: Callable[..., Any], create: Callable[..., Any]) -> None:
    """Have gunicorn's gevent worker call other functions; call it in each worker before it runs.

    Args:
        new_server: makes the server that accepts connections, instead of `gevent.server.StreamServer`.
        create: makes the response and the WSGI environment of a request, instead of `gunicorn.http.wsgi.create`.
    """
    ggevent.StreamServer = new_server
    # PERF: gunicorn formats the date and looks for its log in each request, 40 us of 600.
    util.http_date = lambda: _date(int(time.time()))
    wsgi.WSGIErrorsWrapper = cache(wsgi.WSGIErrorsWrapper)
    wsgi.create = create


@lru_cache(1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)
