"""The process of a broker for tests: its life, its faults and its time, and the socket by which tests control it."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rioni.testing import launcher


# --- The tests' end of the socket by which they control a broker, and with which its life ends ---

READ_BYTES = 65_536
ANSWER_WITHIN_S = 60.0
"""Seconds that a broker may take for a request of a test; moving the time runs all jobs that are due."""
STOP_WITHIN_S = 10.0


class BrokerError(Exception):
    """The broker can't start, has ended, or can't do what a test asks for; the text gives the reason."""


class ControlSocket:
    """Begins a broker and controls it; may be used by several threads."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        """Begin a broker, without waiting for it.

        Args:
            settings: as of `rioni serve`, by name.
        """
        self._lock = threading.Lock()
        self._received = b""
        self._launcher, self._socket = launcher.new_broker()
        self._send(settings)

    def wait_until_ready(self, within_s: float) -> tuple[str, str]:
        """Wait for the broker; return its URL and its folder.

        Raises:
            BrokerError: it can't start, or takes too long.
        """
        with self._lock:
            answer = self._answer(within_s)
        return answer["url"], answer["folder"]

    def request(self, do: str, **members: object) -> int:
        """Ask for something, and wait until it is done; return the number that the broker answers.

        Raises:
            BrokerError: it can't be done, or the broker has ended.
        """
        with self._lock:
            self._send({"do": do, **members})
            ok: int = self._answer(ANSWER_WITHIN_S)["ok"]
            return ok

    def has_ended(self) -> bool:
        """Whether the broker has ended by itself."""
        with self._lock:
            self._socket.settimeout(0)
            try:
                return not self._socket.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return False
            except OSError:
                return True

    def close(self) -> None:
        """End the broker, and wait until it is gone with all it has stored."""
        with self._lock, self._socket, contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(STOP_WITHIN_S)
            # The last process that has the other end is gone then.
            while self._socket.recv(READ_BYTES):
                pass

    def _send(self, message: Mapping[str, object]) -> None:
        try:
            self._socket.sendall(json.dumps(message, default=str).encode() + b"\n")
        except OSError as ex:
            raise self._ended() from ex

    def _answer(self, within_s: float) -> dict[str, Any]:
        until_s = time.monotonic() + within_s
        while b"\n" not in self._received:
            self._socket.settimeout(max(0.001, until_s - time.monotonic()))
            try:
                piece = self._socket.recv(READ_BYTES)
            except TimeoutError as ex:
                raise BrokerError(f"The broker has not answered within {within_s:g} s.") from ex
            except OSError as ex:
                raise self._ended() from ex
            if not piece:
                raise self._ended()
            self._received += piece
        text, self._received = self._received.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(text)
        if "error" in answer:
            raise BrokerError(answer["error"])
        return answer

    def _ended(self) -> BrokerError:
        said = self._launcher.said().strip()
        return BrokerError("The broker has ended." + (f" The output of its process:\n{said}" if said else ""))


# --- The process of a broker for tests: its life, its faults and its time ---

READY_WITHIN_S = 60.0


class BrokerProcess:
    """A broker on this machine, as `rioni serve` with one worker; see `Broker`."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        """Start nothing yet.

        Args:
            settings: as of `rioni serve`, by name.
        """
        self._settings = settings
        self._url: str | None = None
        """The URL of the broker, once it has started; of one that was started elsewhere from the beginning."""
        self._control: ControlSocket | None = None
        self._folder: Path | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Begin to start it, without waiting."""
        with self._lock:
            if self._control is None and self._url is None:
                self._control = ControlSocket(self._settings)

    def start(self) -> None:
        """Start it, and wait until it answers; a broker that has started stays as it is.

        Raises:
            BrokerError: it can't start; the text has the reason.
        """
        self.begin()
        with self._lock:
            if self._url is None:
                assert self._control is not None, "it has begun"
                try:
                    self._url, folder = self._control.wait_until_ready(READY_WITHIN_S)
                except BrokerError:
                    self._control.close()
                    self._control = None
                    raise
                self._folder = Path(folder)

    def stop(self) -> None:
        """End it with all it has stored; it may be started again then, as a new one."""
        with self._lock:
            if self._control is not None:
                self._control.close()
                self._control = self._url = self._folder = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, ex: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The URL of the broker; raises BrokerError before it has started."""
        if self._url is None:
            raise BrokerError("The broker has not started: use `with Broker() as broker`, or call start().")
        return self._url

    @property
    def running(self) -> bool:
        """Whether it runs; one that was started elsewhere counts as running."""
        return self._url is not None and (self._control is None or not self._control.has_ended())

    def log(self) -> str:
        """The log of the broker; empty if it was started elsewhere."""
        return "" if self._folder is None else (self._folder / "log").read_text(errors="replace")

    # --- Faults and time ---

    def fail_next(
        self,
        status: int,
        *,
        count: int = 1,
        method: str | None = None,
        path: str = "*",
        retry_after_s: int | None = None,
    ) -> None:
        """Answer the next requests with an error; they are not processed.

        Args:
            status: of HTTP, 400 or above.
            count: of requests.
            method: only those with this verb.
            path: only those for a path like this one, such as `/event-types/*/events`.
            retry_after_s: value of the header `Retry-After`.

        Raises:
            BrokerError: there is no such status, or the broker was started elsewhere.
        """
        self._add_fault(status=status, count=count, method=method, path=path, retry_after_s=retry_after_s)

    def delay_next(self, seconds: float, *, count: int = 1, method: str | None = None, path: str = "*") -> None:
        """Process the next requests `seconds` later; the other arguments are as for `fail_next`."""
        self._add_fault(delay_s=seconds, count=count, method=method, path=path)

    def drop_next(self, *, count: int = 1, method: str | None = None, path: str = "*", processed: bool = False) -> None:
        """Close the connections of the next requests instead of answering them.

        Args:
            count: of requests.
            method: only those with this verb.
            path: only those for a path like this one.
            processed: whether they are processed before, so that the client can't know whether they were.

        Raises:
            BrokerError: the broker was started elsewhere.
        """
        self._add_fault(drop=True, count=count, method=method, path=path, processed=processed)

    def drop_connections(self) -> int:
        """Close all connections that are open, streams as well; return how many; raises as `drop_next`."""
        return self._controlled.request("drop_connections")

    def clear_faults(self) -> int:
        """Forget the faults that have not happened; return for how many requests they were; raises as `drop_next`."""
        return self._controlled.request("clear_faults")

    def advance(self, time: timedelta | None = None, **units: float) -> datetime:
        """Move the broker's time ahead, and do all that is due then: events expire, streams time out.

        Args:
            time: by how much.
            units: by how much, such as `hours=3`; see `datetime.timedelta`.

        Returns:
            The broker's time then.

        Raises:
            ValueError: time does not go back.
            BrokerError: the broker was started elsewhere.
        """
        by = (time or timedelta()) + timedelta(**units)
        if by < timedelta():
            raise ValueError("Time can only be moved ahead; begin another broker for an earlier time.")
        now_ms = self._controlled.request("advance", milliseconds=round(by / timedelta(milliseconds=1)))
        return datetime.fromtimestamp(now_ms / 1_000, UTC)

    @property
    def _controlled(self) -> ControlSocket:
        if self._control is None:
            where = "was started elsewhere" if self._url else "has not started"
            raise BrokerError(f"Faults and time need a broker of the tests; this one {where}.")
        return self._control

    def _add_fault(self, **fault: object) -> None:
        self._controlled.request("add_fault", fault=fault)
