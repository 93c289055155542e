"""Lets other processes of the same user control a broker for tests: commands over a Unix socket, for any language."""

import contextlib
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rioni.testing.broker import Broker
from rioni.testing.process import BrokerError


LINE_BYTES_MAX = 100_000
CLIENT_WITHIN_S = 10.0
"""Seconds that a process that has connected may take to send its request."""
ANSWER_WITHIN_S = 120.0
LOOK_EVERY_S = 1.0
"""Seconds between two checks whether the broker still runs."""

COMMANDS = ("fail_next", "delay_next", "drop_next", "drop_connections", "clear_faults", "advance")
"""Methods of `Broker` that can be called."""
RESET = "reset"


def socket_path(port: int) -> Path:
    """The path of the socket that controls the broker on a port of this machine."""
    folder = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(folder, f"rioni-testing-{os.getuid()}-{port}")


def serve(broker: Broker, path: Path, ready: Callable[[], None]) -> None:
    """Do the requests of others, one after the other, until the broker ends.

    Args:
        broker: has started.
        path: of the socket, which only this user can connect to.
        ready: is called when others can connect.

    Raises:
        BrokerError: the broker has ended, or the socket can't be made.
    """
    with _listening(path) as listener, contextlib.ExitStack() as contents:
        contents.enter_context(broker.isolated())
        ready()
        while broker.running:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection, contextlib.suppress(OSError):
                connection.settimeout(CLIENT_WITHIN_S)
                connection.sendall(json.dumps(_answer(broker, contents, _line(connection))).encode() + b"\n")
    raise BrokerError("The broker has ended.")


def call(path: Path, do: str, /, **arguments: object) -> Any:
    """Send a request to the process that serves on a socket, and return its answer.

    Raises:
        BrokerError: it can't be done, or no process serves there.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_WITHIN_S)
            connection.connect(str(path))
            connection.sendall(json.dumps({"do": do, "with": arguments}).encode() + b"\n")
            answer = json.loads(_line(connection) or '{"error": "The broker has ended."}')
    except OSError as ex:
        port = path.name.rpartition("-")[2]
        advice = f" `rioni-testing serve --port {port}` starts one." if port.isdecimal() else ""
        raise BrokerError(f"No broker for tests is controlled at {path}: {ex.strerror or ex}.{advice}") from ex
    if "error" in answer:
        raise BrokerError(answer["error"])
    return answer["ok"]


@contextlib.contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        umask = os.umask(0o177)
        try:
            path.unlink(missing_ok=True)
            listener.bind(str(path))
        except OSError as ex:
            raise BrokerError(f"{path} can't be listened on: {ex.strerror}.") from ex
        finally:
            os.umask(umask)
        try:
            listener.listen()
            listener.settimeout(LOOK_EVERY_S)
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) < LINE_BYTES_MAX:
        if not (piece := connection.recv(LINE_BYTES_MAX)):
            break
        data += piece
    return data


def _answer(broker: Broker, contents: contextlib.ExitStack, line: bytes) -> Mapping[str, object]:
    try:
        command = json.loads(line)
        do, arguments = command["do"], command["with"]
        if do == RESET:
            contents.close()
            contents.enter_context(broker.isolated())
            return {"ok": None}
        if do not in COMMANDS:
            return {"error": f"{do!r} is not one of {', '.join((*COMMANDS, RESET))}."}
        result = getattr(broker, do)(**arguments)
    except (BrokerError, ValueError, TypeError, KeyError) as ex:
        return {"error": str(ex)}
    return {"ok": result if isinstance(result, int) else result and str(result)}
