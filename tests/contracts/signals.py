"""The contract of the port `Notifier`: subclasses provide the fixture `signals`."""

import threading

import pytest

from rioni.domain.ports.host import Notifier
from tests.support.waiting import WAIT_S


class SignalsContract:
    @pytest.fixture
    def other(self, signals: Notifier) -> Notifier:
        """The notifier of another process, or an equivalent."""
        return signals

    def test_a_waiter_is_woken_for_its_keys(self, signals: Notifier, other: Notifier):
        waiter = signals.watch(["a", "b"])
        for key in ("a", "b"):
            other.notify(key)
            assert waiter.wait(WAIT_S)
        waiter.close()

    def test_a_woken_waiter_finds_a_new_version(self, signals: Notifier, other: Notifier):
        waiter = signals.watch(["a", "b"])
        before = {key: signals.version(key) for key in ("a", "b")}
        other.notify("a")
        assert waiter.wait(WAIT_S)
        assert signals.version("a") != before["a"]
        assert signals.version("b") == before["b"]
        waiter.close()

    def test_a_version_never_repeats_while_its_key_is_watched(self, signals: Notifier):
        waiter = signals.watch(["a"])
        seen = {signals.version("a")}
        for key in ("a", "b") * 10:
            signals.notify(key)
            seen.add(signals.version("a"))
        assert len(seen) == 11
        waiter.close()

    def test_other_keys_wake_no_waiter(self, signals: Notifier, other: Notifier):
        waiter, witness = signals.watch(["a"]), signals.watch(["b"])
        other.notify("b")
        assert witness.wait(WAIT_S)
        assert not waiter.wait(0)
        waiter.close()
        witness.close()

    def test_a_notification_before_the_wait_is_not_missed(self, signals: Notifier, other: Notifier):
        waiter, witness = signals.watch(["a"]), signals.watch(["a"])
        other.notify("a")
        assert witness.wait(WAIT_S)
        assert waiter.wait(WAIT_S)
        waiter.close()
        witness.close()

    def test_many_notifications_wake_a_waiter_once(self, signals: Notifier):
        waiter = signals.watch(["a"])
        for _ in range(1000):
            signals.notify("a")
        assert waiter.wait(WAIT_S)
        assert not waiter.wait(0)
        waiter.close()

    def test_a_wait_ends_at_its_timeout(self, signals: Notifier):
        waiter = signals.watch(["a"])
        assert not waiter.wait(0.001)
        waiter.close()

    def test_a_closed_waiter_is_not_woken(self, signals: Notifier):
        waiter, witness = signals.watch(["a"]), signals.watch(["a"])
        waiter.close()
        waiter.close()
        signals.notify("a")
        assert witness.wait(WAIT_S)
        assert not waiter.wait(0)
        witness.close()

    def test_every_waiter_is_woken(self, signals: Notifier, other: Notifier):
        watches = [signals.watch(["a"]) for _ in range(10)]
        woken: list[bool] = []
        threads = [threading.Thread(target=lambda watch=waiter: woken.append(watch.wait(WAIT_S))) for waiter in watches]
        for thread in threads:
            thread.start()
        other.notify("a")
        for thread in threads:
            thread.join()
        assert woken == [True] * 10
        for waiter in watches:
            waiter.close()

    def test_notifying_keys_without_waiters_wakes_no_waiter(self, signals: Notifier):
        waiter, witness = signals.watch(["a"]), signals.watch(["b"])
        signals.notify("nobody")
        signals.notify("b")
        assert witness.wait(WAIT_S)
        assert not waiter.wait(0)
        waiter.close()
        witness.close()
