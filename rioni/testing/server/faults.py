"""Faults that tests have asked for: answers with an error, late answers, and connections that break."""

import fnmatch
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

import msgspec

from rioni.http.problems import PROBLEM_JSON, problem


OWN_HEADER = "HTTP_RIONI_TESTING"
"""Requests with the header `Rioni-Testing` are those of the tests themselves, which meet no faults."""
FAULTS_MAX = 1_000
_STATUSES = frozenset(map(int, HTTPStatus))

Answer = Iterable[bytes]
WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Answer]


class BadFault(Exception):
    """A fault that can't happen."""


class Fault(msgspec.Struct, kw_only=True):
    """A fault that happens to the next requests that it applies to."""

    status: int | None = None
    """Answer with this status, and do nothing else."""
    retry_after_s: int | None = None
    """Seconds that the answer with an error asks to wait."""
    delay_s: float = 0
    """Answer this many seconds later."""
    drop: bool = False
    """Close the connection instead of answering."""
    processed: bool = False
    """Whether only the answer is dropped, of a request that was processed."""
    count: int = 1
    """The number of requests."""
    method: str | None = None
    """The verb of the requests; None for all."""
    path: str = "*"
    """The path of the requests, in which `*` is any text."""

    def applies_to(self, method: str, path: str) -> bool:
        """Whether a request is one of those."""
        return self.method in {None, method} and fnmatch.fnmatchcase(path, self.path)


class Faults:
    """The faults that are still to happen. A request meets the first one that applies to it."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Add a fault after the others.

        Raises:
            BadFault: it can't happen, or there are too many of them.
        """
        if len(self._faults) >= FAULTS_MAX:
            raise BadFault(f"{FAULTS_MAX} faults wait for requests already.")
        if fault.status is not None and (fault.status not in _STATUSES or fault.status < HTTPStatus.BAD_REQUEST):
            raise BadFault(f"{fault.status} is not the HTTP status of an error.")
        self._faults.append(fault)

    def clear(self) -> int:
        """Forget all faults; return how many requests they were for."""
        left = sum(fault.count for fault in self._faults)
        self._faults.clear()
        return left

    def around(self, app: WsgiApp) -> WsgiApp:
        """Return an application whose requests meet the faults."""

        def with_faults(environ: dict[str, Any], start_response: Callable[..., Any]) -> Answer:
            fault = None if OWN_HEADER in environ else self._take(environ["REQUEST_METHOD"], environ["PATH_INFO"])
            if fault is None:
                return app(environ, start_response)
            if fault.delay_s:
                time.sleep(fault.delay_s)
            if fault.status is not None:
                return _problem(fault, start_response)
            answer = () if fault.drop and not fault.processed else app(environ, start_response)
            if not fault.drop:
                return answer
            if hasattr(answer, "close"):
                answer.close()
            environ["gunicorn.socket"].cut()
            raise StopIteration  # gunicorn's way to end the connection

        return with_faults

    def _take(self, method: str, path: str) -> Fault | None:
        fault = next((each for each in self._faults if each.applies_to(method, path)), None)
        if fault is not None:
            fault.count -= 1
            if fault.count == 0:
                self._faults.remove(fault)
        return fault


def _problem(fault: Fault, start_response: Callable[..., Any]) -> Answer:
    assert fault.status is not None, "this is why it is answered here"
    status = HTTPStatus(fault.status)
    body = problem(status, "A test has asked for this answer.")
    headers = [("Content-Type", PROBLEM_JSON), ("Content-Length", str(len(body)))]
    if fault.retry_after_s is not None:
        headers.append(("Retry-After", str(fault.retry_after_s)))
    start_response(f"{status.value} {status.phrase}", headers)
    return [body]
