"""Standard input, output and error of a command, wherever they lead: closed, full, or in another encoding than UTF-8.

An output that can't be written ends the command with one line; messages that can't be written are lost.
"""

import atexit
import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rioni.domain.errors import RioniError


class CannotWrite(RioniError):
    """A file that the user names, or standard output, can't be written."""


class ReaderEnded(CannotWrite):
    """The program that reads standard output has ended, which is no error."""


@contextlib.contextmanager
def _naming(path: object) -> Iterator[None]:
    try:
        yield
    except OSError as ex:
        raise CannotWrite(f"{path} can't be written: {ex.strerror}.") from ex


class _Named(io.BufferedWriter):
    """A file that names itself in errors.

    The raw file has no method in Python: an interrupt that came between the system's write and the return of such a
    method would have the same bytes written twice.
    """

    def write(self, data: Any, /) -> int:
        with self._errors():
            super().write(data)
        return len(data)

    def flush(self) -> None:
        with self._errors():
            super().flush()

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return _naming(self.name)


class _Output(_Named):
    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with _naming("Standard output"):
                yield
        except CannotWrite as ex:
            if isinstance(ex.__cause__, BrokenPipeError):
                raise ReaderEnded("The program that reads standard output has ended.") from ex
            raise


class _ClosedOutput(_Named):
    def write(self, data: Any, /) -> int:
        del data
        raise CannotWrite("Standard output can't be written: it is closed.")


class _Messages(_Named):
    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.suppress(OSError)


def created(path: Path) -> io.TextIOWrapper:
    """Open a file that the user names, for text; an error is `CannotWrite`, now and whenever it is written to."""
    with _naming(path):
        return io.TextIOWrapper(_Named(io.FileIO(path, "w")), encoding="utf-8", write_through=True)


def prepare(*, serving: bool = False) -> None:
    """Make standard streams that report their errors; called once, before anything is read or written.

    Args:
        serving: whether this is a server, whose log goes to standard error as directly as possible.
    """
    was_closed = [_occupy(fd) for fd in range(3)]
    if sys.stdin is None:
        _replace("stdin", open(0, encoding="utf-8", closefd=False))  # noqa: SIM115 - for the whole process
    _replace("stdout", _writer(_ClosedOutput, 1, None) if was_closed[1] else output_on(1, sys.stdout))
    if sys.stderr is None or not serving:
        _replace("stderr", _writer(_Messages, 2, sys.stderr))
    else:
        atexit.register(_discard_messages)


def output_on(fd: int, before: Any = None) -> io.TextIOWrapper:
    """Standard output on a file descriptor, with the encoding of another one; errors are `CannotWrite`."""
    return _writer(_Output, fd, before)


def discard_output() -> None:
    """Forget what standard output still has to write: it would fail again when Python ends."""
    if sys.stdout is not sys.__stdout__:
        return  # another program runs this one in its process
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    _replace("stdout", open(1, "w", encoding="utf-8", closefd=False))  # noqa: SIM115 - as above


def _discard_messages() -> None:
    """Forget the output that a server could not write to standard error: Python would end with exit code 120."""
    try:
        sys.stderr.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)


def _occupy(fd: int) -> bool:
    """Keep files that are opened later from becoming a standard stream; whether the stream was closed."""
    try:
        os.fstat(fd)
    except OSError:
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != fd:
            os.dup2(nowhere, fd)
            os.close(nowhere)
        return True
    return False


def _writer(kind: type[_Named], fd: int, before: Any) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        kind(io.FileIO(fd, "w", closefd=False)),
        encoding=getattr(before, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=before is not None and (fd == 2 or before.isatty()),  # noqa: PLR2004 - standard error
        write_through=True,
    )


def _replace(name: str, stream: Any) -> None:
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)
