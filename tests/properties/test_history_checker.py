"""The history checker finds violations in histories, and none in correct ones."""

import copy

import pytest

from tests.support.history_checker import Commit, Delivery, History, Observation, Reset, Stream, violations


def delivery(at: float, *numbers: int, partition: str = "0") -> Delivery:
    return Delivery(at=at, partition=partition, position=numbers[-1], numbers=numbers)


def placed(at: float, *numbers: int) -> Delivery:
    """The first events of a partition, with any numbers."""
    return Delivery(at=at, partition="0", position=len(numbers) - 1, numbers=numbers)


def commit(begun: float, position: int, status: int = 204, partition: str = "0") -> Commit:
    return Commit(begun=begun, ended=begun + 0.5, partition=partition, position=position, status=status)


def seen(at: float, position: int) -> Observation:
    return Observation(begun=at, ended=at + 0.1, positions={"0": position})


@pytest.fixture
def history() -> History:
    """`one` has partition 0, loses it to `two` with an event uncommitted, and gets it back before a reset to 2."""
    return History(
        acknowledged={"0": list(range(9))},
        streams={
            "one": Stream(
                opened=1,
                deliveries=[delivery(2, 0, 1), delivery(3, 2), delivery(10, 4, 5)],
                commits=[commit(2, 1), commit(11, 5)],
                ended=20,
                reason="Resetting subscription cursors",
            ),
            "two": Stream(
                opened=5,
                deliveries=[delivery(6, 2, 3)],
                commits=[commit(7, 3), commit(8, 3, 200)],
                ended=16,
                excused=True,
            ),
            "three": Stream(
                opened=25,
                deliveries=[delivery(26, 3, 4), delivery(27, 5, 6, 7, 8)],
                commits=[commit(28, 8)],
                ended=30,
                reason="Stream timeout reached",
            ),
        },
        refused={"0": [20]},
        replays={
            "first": [delivery(40, 0, 1, 2, 3), delivery(41, 4, 5, 6, 7, 8)],
            "second": [delivery(40, 0, 1, 2, 3, 4, 5, 6, 7, 8)],
        },
        resets=[Reset(begun=18, ended=22, positions={"0": 2})],
        observations=[seen(4, 1), seen(9, 3), seen(15, 5), seen(24, 2), seen(29, 8)],
        registered=["a"],
        registries={"here": [("1", "a"), ("2", "b")], "there": [("1", "a"), ("2", "b")]},
    )


def test_a_correct_history_has_no_violations(history):
    assert violations(history) == []


def lost(history):
    history.acknowledged["0"].append(9)


def lost_in_a_partition_without_deliveries(history):
    history.acknowledged["1"] = [0]


def acknowledged_before_it_was_stored(history):
    history.replays = {"first": [delivery(40, 0, 1, 2, 3, 4, 5, 6, 7)]}


def tail_lost(history):
    del history.replays["first"][1]


def lost_for_one_reader(history):
    history.replays["third"] = []


def stored_though_rejected(history):
    history.refused["0"].append(7)


def appended_twice(history):
    history.replays = {"first": [placed(40, 0, 1, 2, 3, 4, 4, 5, 6, 7, 8)]}
    history.streams = {}


def stored_in_another_order(history):
    history.replays = {"first": [placed(40, 0, 1, 3, 2, 4, 5, 6, 7, 8)]}
    history.streams = {}


def acknowledged_late(history):
    history.acknowledged["0"] = [0, 1, 2, 4, 5, 6, 7, 8, 3]
    history.replays = {"first": [placed(40, 0, 1, 2, 4, 3, 5, 6, 7, 8)]}
    history.streams = {}


def another_order_for_one_reader(history):
    history.replays["second"] = [placed(40, 0, 1, 2, 3, 4, 6, 5, 7, 8)]


def hole_between_batches(history):
    history.replays["second"] = [delivery(40, 0, 1, 2, 3), delivery(41, 5, 6, 7, 8)]


def begun_too_late(history):
    history.replays["second"] = [delivery(40, 1, 2, 3, 4, 5, 6, 7, 8)]


def doubled(history):
    history.streams["three"].deliveries[1] = delivery(27, 5, 6, 7, 7, 8)


def swapped(history):
    history.streams["three"].deliveries[1] = delivery(27, 5, 7, 6, 8)


def gap_within_a_stream(history):
    history.streams["three"].deliveries[1] = delivery(27, 6, 7, 8)


def gap_after_a_hand_over(history):
    history.streams["two"].deliveries[0] = delivery(6, 3)


def gap_after_a_reset(history):
    history.streams["three"].deliveries[0] = delivery(26, 4)


def repeated_though_committed(history):
    history.streams["two"].deliveries[0] = delivery(6, 1, 2, 3)


def repeated_within_a_stream(history):
    history.streams["three"].deliveries.append(delivery(27.5, 7, 8))


def cursor_moved_back(history):
    history.observations.insert(2, seen(12, 2))


def commit_lost(history):
    history.observations[:3] = [seen(8, 1)]


def commit_after_the_end(history):
    history.streams["three"].commits.append(commit(31, 8, 200))


def commit_of_undelivered_events(history):
    history.streams["two"].commits.append(commit(8.5, 5, 200))


def two_owners(history):
    history.streams["one"].deliveries[2] = delivery(10, 3, 4, 5)


def cursor_off_by_one(history):
    history.observations[1] = seen(9, 2)


def commit_of_a_stale_owner(history):
    """`one`, which had been suspended, commits what it got before `two` took the partition over."""
    history.streams["one"].deliveries = [delivery(2, 0, 1), delivery(3, 2, 3, 4)]
    history.streams["one"].commits = [commit(2, 1), commit(9, 4)]


def first_commit_of_a_stale_owner(history):
    history.streams["one"].deliveries = [delivery(2, 0, 1, 2, 3, 4)]
    history.streams["one"].commits = [commit(9, 4)]
    history.streams["two"].deliveries = [delivery(6, 0, 1, 2, 3)]


def silent_end(history):
    history.streams["three"].reason = ""


def test_a_stream_may_begin_after_a_reset_that_followed_its_request(history):
    history.streams["three"].opened, history.streams["three"].answered = 17, 25
    assert violations(history) == []
    history.streams["three"].answered = 17.5
    assert {each.partition(":")[0] for each in violations(history)} == {"repeated"}


def test_unacknowledged_events_may_be_stored_late_or_never():
    history = History(
        acknowledged={"0": [0, 1, 4, 5]},
        streams={"one": Stream(opened=1, deliveries=[placed(2, 0, 1, 4, 5, 3)])},
        replays={"first": [placed(3, 0, 1, 4, 5, 3)]},
    )
    assert violations(history) == []


def registered_and_unseen(history):
    history.unseen.append(("a", "there"))


def registered_and_lost(history):
    history.registered.append("c")


def registered_in_one_place_only(history):
    del history.registries["there"][1]


def registered_twice(history):
    for found in history.registries.values():
        found.append(("2", "c"))


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lost, "lost"),
        (lost_in_a_partition_without_deliveries, "lost"),
        (acknowledged_before_it_was_stored, "lost"),
        (tail_lost, "lost"),
        (lost_for_one_reader, "lost"),
        (stored_though_rejected, "refused"),
        (appended_twice, "doubled"),
        (stored_in_another_order, "disordered"),
        (acknowledged_late, "disordered"),
        (another_order_for_one_reader, "disordered"),
        (hole_between_batches, "hole"),
        (begun_too_late, "hole"),
        (cursor_off_by_one, "moved back"),
        (commit_of_a_stale_owner, "foreign"),
        (first_commit_of_a_stale_owner, "foreign"),
        (doubled, "disordered"),
        (swapped, "disordered"),
        (gap_within_a_stream, "gap"),
        (gap_after_a_hand_over, "gap"),
        (gap_after_a_reset, "gap"),
        (repeated_though_committed, "repeated"),
        (repeated_within_a_stream, "repeated"),
        (cursor_moved_back, "moved back"),
        (commit_lost, "moved back"),
        (commit_after_the_end, "foreign"),
        (commit_of_undelivered_events, "foreign"),
        (two_owners, "foreign"),
        (silent_end, "silent"),
        (registered_and_unseen, "forgotten"),
        (registered_and_lost, "forgotten"),
        (registered_in_one_place_only, "forgotten"),
        (registered_twice, "doubled"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_an_injected_violation_is_found(history, plant, kind):
    broken = copy.deepcopy(history)
    plant(broken)
    assert kind in {each.partition(":")[0] for each in violations(broken)}
