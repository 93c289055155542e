"""A broker in this process, for tests that make thousands of requests or change its code: no server, no thread."""

import io
import json
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from rioni.config.settings import Config
from rioni.installation.pools import NO_POOLS, Pools, WorkerPools
from rioni.server.startup import prepare_startup
from rioni.server.worker import worker
from tests.support.tokens import bearer


HOST, LOOPBACK = "broker.example", "127.0.0.1"


class Answer(NamedTuple):
    """An answer, of whose body only as much was read as was asked for."""

    status: int
    headers: Mapping[str, str]
    """By their names in lower case."""
    text: str

    def json(self) -> Any:
        """The JSON of the body."""
        return json.loads(self.text)


class InProcess:
    """Makes requests to the WSGI application of a broker."""

    def __init__(self, app: Callable[..., Any], connection: socket.socket) -> None:
        self.app, self._connection = app, connection

    def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] = {},
        pieces: int | None = None,
        begun: Callable[[], None] | None = None,
    ) -> Answer:
        """Make a request.

        Args:
            method: the verb.
            target: path and query.
            body: sent as JSON; bytes as they are.
            token: of the client; None sends none.
            headers: further ones.
            pieces: how many of the body are read: of a stream that does not end; None for all, as of refusals.
            begun: called once the first of them has arrived.
        """
        path, _, query = target.partition("?")
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent = {"Host": HOST, **bearer(token), **headers}
        started: list[Any] = []
        environ = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote(path, "latin-1"),
            "RAW_URI": target,
            "QUERY_STRING": query,
            "SERVER_NAME": HOST,
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": LOOPBACK,
            "CONTENT_LENGTH": str(len(content)),
            "CONTENT_TYPE": sent.pop("Content-Type", "application/json" if content else ""),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(content),
            "wsgi.errors": sys.stderr,
            "gunicorn.socket": self._connection,
            **{"HTTP_" + name.upper().replace("-", "_"): value for name, value in sent.items()},
        }
        answer = self.app(environ, lambda status, named, *_: started.extend((status, named)))
        read = []
        try:
            for piece in islice(answer, None if int(started[0][:3]) >= HTTPStatus.BAD_REQUEST else pieces):
                read.append(piece)
                if piece and begun is not None:
                    begun()
                    begun = None
        finally:
            if close := getattr(answer, "close", None):
                close()
        status, named = started
        return Answer(
            int(status[:3]), {name.lower(): value for name, value in named}, b"".join(read).decode(errors="replace")
        )


class _InPlace(Pools):
    """Pools whose work runs in the caller's thread."""

    def worker_pools(self) -> WorkerPools:
        return NO_POOLS


@contextmanager
def in_process(data: Path, **settings: Any) -> Iterator[InProcess]:
    """A broker with a new data directory and these settings, until the block ends."""
    config = Config(data=data, **settings)
    with (
        prepare_startup(config) as directory,
        closing(worker(config, directory, _InPlace())) as made,
        # Streams look at the state of their connection, which is one of TCP.
        socket.create_server((LOOPBACK, 0)) as server,
        socket.create_connection(server.getsockname()),
        server.accept()[0] as connection,
    ):
        yield InProcess(made.app, connection)
