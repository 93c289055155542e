"""Runs health checks concurrently, with timeouts and a one-second cache."""

import threading  # threads: greenlets that check what may hang; waits have deadlines
from collections.abc import Callable, Mapping

from rioni.domain.errors import RioniError
from rioni.domain.ports.host import Clock, Health


HOLDS_S = 1.0
"""Lifetime of cached results."""

PATIENCE_S = 4.0
"""Time-out of a check; a check without an answer has failed."""

Look = Callable[[], Health | None]
"""Checks a dependency; returns None if it does not exist at present."""


class HealthChecker:
    """Runs all health checks concurrently, with a time-out."""

    def __init__(self, looks: Mapping[str, Look], clock: Clock) -> None:
        """Keep the checks.

        Args:
            looks: checks by name; may block, and raise RioniError.
            clock: for deadlines.
        """
        self._looks, self._clock = looks, clock
        self._lock = threading.Lock()
        self._found: dict[str, _CheckResult] = {}

    def results(self) -> dict[str, Health]:
        """The result of each check; blocks for `PATIENCE_S` at most, unless the clock stops."""
        findings = {name: self._begun(name, check) for name, check in self._looks.items()}
        deadline_s = self._clock.monotonic() + PATIENCE_S
        found = {name: each.wait(max(0.0, deadline_s - self._clock.monotonic())) for name, each in findings.items()}
        return {name: health for name, health in found.items() if health is not None}

    def _begun(self, name: str, check: Look) -> "_CheckResult":
        with self._lock:
            finding = self._found.get(name)
            if finding is None or self._clock.monotonic() > finding.holds_until_s:
                finding = self._found[name] = _CheckResult(check, self._clock)
            return finding


class _CheckResult:
    """One run of one check, in a separate thread."""

    def __init__(self, check: Look, clock: Clock) -> None:
        self.holds_until_s = float("inf")
        """The time until which the result is cached; infinite while the check runs, so no other run is started."""
        self._check, self._clock = check, clock
        self._health: Health | None = Health(reason=f"No response within {PATIENCE_S:g} s.")
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="rioni-health", daemon=True).start()

    def wait(self, timeout_s: float) -> Health | None:
        """The result, or a failure if it did not come in time."""
        self._ended.wait(timeout_s)
        return self._health

    def _run(self) -> None:
        try:
            self._health = self._check()
        except RioniError as ex:
            self._health = Health(reason=str(ex))
        except Exception as ex:  # noqa: BLE001 - whatever a check meets, it has failed, and says why
            self._health = Health(reason=f"{type(ex).__name__}: {ex}")
        finally:
            self.holds_until_s = self._clock.monotonic() + HOLDS_S
            self._ended.set()
