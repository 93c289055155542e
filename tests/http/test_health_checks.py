import threading

from rioni.domain.errors import Unavailable
from rioni.domain.ports.host import Health
from rioni.http.health_checks import HOLDS_S, PATIENCE_S, HealthChecker
from tests.support.clock import ManualClock


FINE = Health(detail="fine")


class ImpatientClock(ManualClock):
    """A clock on which every timeout has passed at each call."""

    def monotonic(self) -> float:
        self.advance(int(PATIENCE_S * 1_000))
        return super().monotonic()


def test_each_check_is_shown_and_failed_ones_with_the_reason():
    """Reference operations#check-results."""

    def away() -> Health:
        raise Unavailable("Nobody answers.")

    results = HealthChecker({"near": lambda: FINE, "far": away}, ManualClock()).results()
    assert results == {"near": FINE, "far": Health(reason="Nobody answers.")}
    assert [health.status for health in results.values()] == ["ok", "failed"]


def test_results_are_shared_by_all_requests_for_a_while():
    """Reference operations#check-results."""
    looks, clock = [], ManualClock()

    def look() -> Health:
        looks.append(1)
        return FINE

    checker = HealthChecker({"it": look}, clock)
    for _ in range(3):
        checker.results()
    assert len(looks) == 1
    clock.advance(int(HOLDS_S * 1_000) + 1)
    checker.results()
    assert len(looks) == 2


def test_a_hanging_check_has_failed_and_is_not_started_again_before_it_ends():
    """Reference operations#check-results."""
    answers, looks = threading.Event(), []

    def hang() -> Health:
        looks.append(1)
        answers.wait()
        return FINE

    checker = HealthChecker({"it": hang}, ImpatientClock())
    for _ in range(2):
        assert "No response" in checker.results()["it"].reason
    assert len(looks) == 1
    answers.set()


def test_a_working_state_that_should_change_is_a_warning():
    assert Health(warnings=("One copy only.",)).status == "warning"
