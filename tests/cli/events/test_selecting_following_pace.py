from rioni.cli.events.selecting import BUSY_PER_S, CALM_PER_S, TOGETHER, Pace
from tests.support.clock import ManualClock


def test_many_events_come_together_and_few_at_once():
    clock = ManualClock()
    pace = Pace(clock.monotonic)

    def second(events):
        changed = pace.changes(0)
        for _ in range(10):
            clock.advance(100)
            changed |= pace.changes(events // 10)
        return changed, pace.batch_limit

    assert second(CALM_PER_S) == (False, 1)
    assert second(BUSY_PER_S) == (False, 1)
    assert second(BUSY_PER_S + 10) == (True, TOGETHER)
    assert second(BUSY_PER_S) == (False, TOGETHER)
    assert second(CALM_PER_S) == (False, TOGETHER)
    assert second(CALM_PER_S - 10) == (True, 1)
