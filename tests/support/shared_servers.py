"""Real servers that all processes of a test run share: one Kafka, one ZooKeeper and one PostgreSQL.

They run in a separate process, so that no worker of pytest-xdist ends them when it ends itself. Each one starts
when a test first needs it. All end when the test run closes its end of a pipe, also by dying.
"""

import contextlib
import json
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.waiting import WAIT_S


ROOT = Path(__file__).parents[2]
ANSWER_TIMEOUT_S = 240
"""A server starts within 60 s, and two others may be started first."""
CONNECTIONS_MAX = 500
"""Connections to PostgreSQL: every worker process of every node under test keeps some open."""


class SharedServers:
    """The process that runs the servers; it starts when its address is first used."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._path = ""

    @property
    def address(self) -> str:
        """The socket for `address_of`; blocks until the process listens there."""
        if self._process is None:
            self._path = f"{tempfile.mkdtemp(prefix='rioni-servers-')}/socket"
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, self._path],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Ctrl-C is for the test run, which then closes the pipe.
                start_new_session=True,
            )
            assert self._process.stdout is not None
            with self._process.stdout as output:
                assert output.readline(), "the process that keeps the servers has ended"
        return self._path

    def close(self) -> None:
        """End the servers; blocks until they have ended."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(WAIT_S)


def address_of(server: str, path: str) -> str:
    """The address of a server, which is started if it does not run yet.

    Args:
        server: `kafka`, `zookeeper` or `postgres`.
        path: from `SharedServers.address`.

    Returns:
        The value for the setting of the same name; for PostgreSQL the URL of a database that no test works in.

    Raises:
        AssertionError: the server does not start; the text says why.
        TimeoutError: it has neither started nor failed within `ANSWER_TIMEOUT_S`.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_TIMEOUT_S)
        connection.connect(path)
        connection.sendall(f"{server}\n".encode())
        with connection.makefile() as answer:
            answered = json.loads(answer.readline())
    assert "address" in answered, answered["error"]
    return str(answered["address"])


# --- the process ---


def main(path: str) -> None:
    """Serve requests on a socket until standard input ends; then end the servers, and remove the socket's folder."""
    with contextlib.ExitStack() as stack, socket.socket(socket.AF_UNIX) as listener:
        stack.callback(shutil.rmtree, Path(path).parent)
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)  # noqa: T201 - said to the parent
        answers: dict[str, dict[str, str]] = {}
        # All in this one thread: servers that were started by another thread would end with it.
        while sys.stdin not in (ready := select.select([listener, sys.stdin], [], [])[0]):
            assert ready
            connection, _ = listener.accept()
            # The client may have ended before it is answered.
            with connection, contextlib.suppress(OSError):
                server = connection.makefile().readline().strip()
                if server not in answers:
                    answers[server] = _started(server, stack)
                connection.sendall(json.dumps(answers[server]).encode() + b"\n")


def _started(server: str, stack: contextlib.ExitStack) -> dict[str, str]:
    try:
        return {"address": stack.enter_context(STARTS[server]())}
    except Exception as ex:  # noqa: BLE001 - every client gets the error as its answer
        return {"error": f"{server} could not be started: {ex!r}"}


@contextlib.contextmanager
def _cluster(**servers: int) -> Iterator[str]:
    from rioni.cli.cluster.cluster import running_cluster  # noqa: PLC0415 - most test runs need no server

    with running_cluster(**servers, postgres=False) as cluster:
        yield cluster.kafka or cluster.zookeeper


@contextlib.contextmanager
def _postgres() -> Iterator[str]:
    from tests.support.postgres import running_postgres  # noqa: PLC0415 - as above

    with running_postgres(CONNECTIONS_MAX) as url:
        yield url


STARTS: dict[str, Callable[[], contextlib.AbstractContextManager[str]]] = {
    "kafka": lambda: _cluster(brokers=1),
    "zookeeper": lambda: _cluster(brokers=0, zookeepers=1),
    "postgres": _postgres,
}


if __name__ == "__main__":
    main(sys.argv[1])
