"""Work in turns: others run whenever a turn is over, by the time and not by the amount of work."""

from rioni.domain import breaths
from rioni.domain.breaths import BREATH_S, TURN_S, Breaths, free


class Time:
    """A clock that work and pauses move on."""

    def __init__(self):
        self.now_s, self.pauses = 0.0, []

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.pauses.append((self.now_s, seconds))
        self.now_s += seconds


def test_a_pause_follows_each_turn_however_slow_the_machine_is(monkeypatch):
    for step_s in (0.0001, 0.001, 0.05):
        time = Time()
        monkeypatch.setattr(breaths, "time", time)
        breathe = Breaths()
        for _ in range(100):
            time.now_s += step_s
            breathe()
        begins = [0.0, *(moment + seconds for moment, seconds in time.pauses)]
        turns = [ends - begin for begin, (ends, _) in zip(begins, time.pauses, strict=False)]
        assert turns
        assert all(TURN_S < turn <= TURN_S + 2 * step_s for turn in turns)
        assert {seconds for _, seconds in time.pauses} == {BREATH_S}


def test_lists_are_freed_bit_by_bit(monkeypatch):
    time = Time()
    monkeypatch.setattr(breaths, "time", time)

    class Value:
        def __del__(self):
            time.now_s += 0.0001

    one, other = [Value() for _ in range(1_000)], [Value()]
    free(one, [], other)
    assert one == other == []
    assert len(time.pauses) > 0.1 / (TURN_S + 20 * 0.0001) - 1
