"""The tests' end of the socket by which they control a broker, and with which its life ends."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from rioni.testing import launcher


READ_BYTES = 65_536
ANSWER_WITHIN_S = 60.0
"""How long a broker may take for what a test asks of it; moving the time runs all jobs that are due."""
STOP_WITHIN_S = 10.0


class BrokerError(Exception):
    """The broker can't start, has ended, or can't do what a test asks for; the text says why."""


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
        return BrokerError("The broker has ended." + (f" Its process said:\n{said}" if said else ""))
