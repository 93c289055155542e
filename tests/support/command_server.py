"""Runs commands of `rioni` in forks of a process that has imported all of them, for scripts that have many.

A new process would spend most of its time with imports. `commands_on_path` makes a folder for `PATH` with a program
`rioni` that passes its arguments, folder, environment and files on, and ends as the command does.
"""

import contextlib
import gc
import importlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import typer

from tests.support.waiting import WAIT_S


ROOT = Path(__file__).parents[2]
MESSAGE_BYTES_MAX = 1_000_000
_PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect({path!r})
request = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
pid = int(connection.recv(16))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(pid, number))
sys.exit(int(connection.recv(16) or b"1"))
"""


@contextlib.contextmanager
def commands_on_path(folder: Path) -> Iterator[Path]:
    """A folder for `PATH` with `rioni`, below this one; its process ends with the block."""
    path = folder / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen(64)
        command = [sys.executable, "-m", __name__, str(listener.fileno())]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, pass_fds=[listener.fileno()]) as process:
            programs = folder / "bin"
            programs.mkdir()
            program = programs / "rioni"
            program.write_text(_PROGRAM.format(python=sys.executable, path=str(path)))
            program.chmod(0o755)
            try:
                yield programs
            finally:
                process.terminate()
                process.wait(WAIT_S)


def main(listener: socket.socket) -> None:
    """Fork a process for each command, until this one is terminated."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        with connection:
            if os.fork() == 0:
                listener.close()
                _run(connection)


def _run(connection: socket.socket) -> None:
    """Run a command, and send its exit code; does not return."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        message, files, _, _ = socket.recv_fds(connection, MESSAGE_BYTES_MAX, 3)
        request = json.loads(message)
        connection.send(str(os.getpid()).encode())
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = ["rioni", *request["arguments"]]
        importlib.import_module("rioni.cli.app").main()
    except SystemExit as ex:
        code = ex.code if isinstance(ex.code, int) else int(ex.code is not None)
    except BaseException:  # noqa: BLE001 - as Python ends where it is not caught
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            connection.send(str(code).encode())
        os._exit(code)


if __name__ == "__main__":
    for module in ("rioni.client", "httpx", "rich.table", "rioni.cli.documentation"):
        importlib.import_module(module)
    importlib.import_module("rioni.cli.documentation").pages()
    with contextlib.redirect_stdout(io.StringIO()):
        # typer and rich import more modules when they are first used.
        typer.main.get_command(importlib.import_module("rioni.cli.app").app)(["cheat"], standalone_mode=False)
    # PERF: a fork that looks for garbage copies all of the memory.
    gc.disable()
    gc.freeze()
    main(socket.socket(fileno=int(sys.argv[1])))
