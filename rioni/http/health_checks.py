"""Runs health checks concurrently, with timeouts and a one-second cache."""

import threading
from collections.abc import Callable, Mapping

from rioni.domain.errors import RioniError
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.health import Health


HOLDS_S = 1.0
"""For so long what was found is not looked at again, however many ask."""

PATIENCE_S = 4.0
"""What has not answered by then does not work."""

Look = Callable[[], Health | None]
"""Finds out how well a thing works; None where there is no such thing at present."""


class HealthChecker:
    """Looks at everything at once, and does not wait for what hangs."""

    def __init__(self, looks: Mapping[str, Look], clock: Clock) -> None:
        """Look at nothing yet.

        Args:
            looks: for the name of each thing what finds out how well it works; may block, and raise RioniError.
            clock: for deadlines.
        """
        self._looks, self._clock = looks, clock
        self._lock = threading.Lock()
        self._found: dict[str, _CheckResult] = {}

    def results(self) -> dict[str, Health]:
        """How well each thing works; blocks for `PATIENCE_S` at most, unless the clock stands."""
        findings = {name: self._begun(name, look) for name, look in self._looks.items()}
        deadline_s = self._clock.monotonic() + PATIENCE_S
        found = {name: each.wait(max(0.0, deadline_s - self._clock.monotonic())) for name, each in findings.items()}
        return {name: health for name, health in found.items() if health is not None}

    def _begun(self, name: str, look: Look) -> "_CheckResult":
        with self._lock:
            finding = self._found.get(name)
            if finding is None or self._clock.monotonic() > finding.holds_until_s:
                finding = self._found[name] = _CheckResult(look, self._clock)
            return finding


class _CheckResult:
    """One look at one thing, in a thread of its own."""

    def __init__(self, look: Look, clock: Clock) -> None:
        self.holds_until_s = float("inf")
        """As long as it lasts nobody begins another one."""
        self._look, self._clock = look, clock
        self._health: Health | None = Health(reason=f"No response within {PATIENCE_S:g} s.")
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="rioni-health", daemon=True).start()

    def wait(self, timeout_s: float) -> Health | None:
        """What was found, if it is in time."""
        self._ended.wait(timeout_s)
        return self._health

    def _run(self) -> None:
        try:
            self._health = self._look()
        except RioniError as ex:
            self._health = Health(reason=str(ex))
        finally:
            self.holds_until_s = self._clock.monotonic() + HOLDS_S
            self._ended.set()
