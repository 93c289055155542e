"""The places of gunicorn that are replaced are still the ones that it uses."""

from types import SimpleNamespace

import pytest
from gunicorn import util
from gunicorn.config import Config
from gunicorn.http import wsgi
from gunicorn.http.parser import RequestParser
from gunicorn.workers import ggevent
from gunicorn.workers.base_async import AsyncWorker

from rioni.patches.gunicorn import HookedRequest, use_functions, use_request_class


class _Recording(HookedRequest):
    def parse_head(self, unreader, received):
        self.head = bytes(received)
        return super().parse_head(unreader, received)


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    places = ((RequestParser, "mesg_class"), (RequestParser, "finish_body"), (ggevent, "StreamServer"))
    for owner, name in (*places, (util, "http_date"), (wsgi, "WSGIErrorsWrapper"), (wsgi, "create")):
        monkeypatch.setattr(owner, name, getattr(owner, name))


def test_requests_are_parsed_by_the_class_and_bodies_are_not_finished_by_gunicorn():
    use_request_class(_Recording)
    config = Config()
    config.set("http_parser", "python")
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n"
    parser = RequestParser(config, iter([head + b"ab" + head]), ("127.0.0.1", 1))
    first = next(parser)
    assert (first.head[: len(head)], first.headers, first.body.read()) == (
        head,
        [("HOST", "a"), ("CONTENT-LENGTH", "2")],
        b"ab",
    )
    assert parser.finish_body() is True
    assert type(next(parser)) is _Recording


def test_a_worker_looks_its_functions_up_when_it_calls_them():
    assert "StreamServer" in ggevent.GeventWorker.run.__code__.co_names
    assert {"wsgi", "create"} <= {*AsyncWorker.handle_request.__code__.co_names}


def test_responses_and_environments_are_made_with_what_is_replaced():
    use_functions(ggevent.StreamServer, wsgi.create)
    config = Config()
    environ = [wsgi.base_environ(config)["wsgi.errors"] for _ in range(2)]
    assert environ[0] is environ[1]
    util.http_date = lambda: "now"
    request = SimpleNamespace(version=(1, 1), should_close=lambda: False, method="HEAD", headers=[])
    response = wsgi.Response(request, None, config)
    assert "Date: now\r\n" in response.default_headers()
