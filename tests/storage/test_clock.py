"""A jump of the machine's clock is held back and reported; small corrections are followed."""

import pytest
from structlog.testing import capture_logs

from rioni.storage.clock import CLOCK_JUMP_MAX_MS, ExpiryClock, Readings, SteadyTime, SystemClock, not_before


START_MS = 1_700_000_000_000
TEN_YEARS_MS = 10 * 365 * 86_400_000


class Machine:
    """The two clocks of a machine."""

    def __init__(self):
        self.wall_ms, self.elapsed_ms, self.asleep_ms = START_MS, 5_000, 700
        self.steady = SteadyTime(Readings(lambda: self.wall_ms, lambda: self.elapsed_ms, lambda: self.asleep_ms))

    def pass_time(self, ms):
        self.wall_ms += ms
        self.elapsed_ms += ms


@pytest.fixture
def machine():
    return Machine()


def test_time_advances_as_long_as_both_clocks_agree(machine):
    machine.pass_time(TEN_YEARS_MS)
    assert (machine.steady.now_ms(), machine.steady.warning) == (START_MS + TEN_YEARS_MS, "")


def test_the_jump_of_a_suspended_machine_is_accepted(machine):
    for _ in range(3):
        machine.wall_ms += TEN_YEARS_MS
        machine.asleep_ms += TEN_YEARS_MS
        assert (machine.steady.now_ms(), machine.steady.warning) == (machine.wall_ms, "")


@pytest.mark.parametrize("correction_ms", [-CLOCK_JUMP_MAX_MS, -1, 1, CLOCK_JUMP_MAX_MS])
def test_any_number_of_small_corrections_is_followed(machine, correction_ms):
    for _ in range(100):
        machine.wall_ms += correction_ms
        assert machine.steady.now_ms() == machine.wall_ms
    assert machine.steady.warning == ""


@pytest.mark.parametrize(
    ("jump_ms", "text"),
    [
        (CLOCK_JUMP_MAX_MS + 1, "ahead by 3600 s"),
        (-CLOCK_JUMP_MAX_MS - 1, "back by 3600 s"),
        (TEN_YEARS_MS, "ahead by 315360000 s"),
        (-10 * TEN_YEARS_MS, "back by 3153600000 s"),
    ],
)
def test_a_jump_is_held_back_and_reported_once_until_it_is_over(machine, jump_ms, text):
    with capture_logs() as logged:
        machine.wall_ms += jump_ms
        for passed_ms in range(1_000, 4_000, 1_000):
            machine.pass_time(1_000)
            assert machine.steady.now_ms() == START_MS + passed_ms
        assert text in machine.steady.warning
        assert [line["log_level"] for line in logged] == ["warning"]
        machine.wall_ms -= jump_ms
        assert machine.steady.now_ms() == machine.wall_ms
        assert machine.steady.warning == ""
    assert [line["log_level"] for line in logged] == ["warning", "info"]


def test_expiry_is_decided_by_the_later_time(monkeypatch):
    clock, machine = ExpiryClock(), Machine()
    monkeypatch.setattr("rioni.storage.clock.STEADY", machine.steady)
    monkeypatch.setattr("rioni.storage.clock._wall_ms", lambda: machine.wall_ms)
    machine.wall_ms += TEN_YEARS_MS
    assert (clock.now_ms(), SystemClock().now_ms()) == (START_MS + TEN_YEARS_MS, START_MS)
    machine.wall_ms -= 2 * TEN_YEARS_MS
    assert clock.now_ms() == SystemClock().now_ms() == START_MS


@pytest.mark.parametrize(
    ("previous_ms", "stamp_ms"),
    [(5, 10), (10, 10), (11, 11), (10 + CLOCK_JUMP_MAX_MS, 10 + CLOCK_JUMP_MAX_MS), (11 + CLOCK_JUMP_MAX_MS, 10)],
)
def test_timestamps_do_not_go_back_unless_the_previous_one_was_wrong(previous_ms, stamp_ms):
    assert not_before(previous_ms, 10) == stamp_ms
