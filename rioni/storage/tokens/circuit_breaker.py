"""Stops calls to unresponsive token servers for a while (circuit breaker)."""

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from rioni.domain.errors import TokensUnavailable
from rioni.domain.ports.clock import Clock


P = ParamSpec("P")
T = TypeVar("T")

FAILURES_MAX = 5
PAUSE_S = 2.0


class CircuitBreaker:
    """Passes calls through until several in a row have failed; after a pause one call probes before all others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._closed_until_s = 0.0

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function.

        Raises:
            TokensUnavailable: the function raised it, or the circuit is open.
        """
        with self._lock:
            now_s = self._clock.monotonic()
            if self._failures >= FAILURES_MAX:
                if now_s < self._closed_until_s:
                    raise TokensUnavailable("Tokens can't be checked at present")
                self._closed_until_s = now_s + PAUSE_S
        try:
            result = function(*args, **kwargs)
        except TokensUnavailable:
            with self._lock:
                self._failures += 1
                self._closed_until_s = self._clock.monotonic() + PAUSE_S
            raise
        with self._lock:
            self._failures = 0
        return result
