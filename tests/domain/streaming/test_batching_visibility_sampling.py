"""The events that a stream with a limit of events per second leaves out.

Source: reference low-level-streams#left-out-events.
"""

from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.streaming.batching import FRAME_S, Sampling


def test_nothing_is_left_out_within_the_limit():
    sampling = Sampling(10, 0)
    assert sampling.left_out({"0": 4, "1": 6}, 0, 0) == {}
    assert sampling.left_out({"0": 0, "1": 10}, 10, 1) == {}


def test_a_partition_with_few_events_loses_none():
    assert Sampling(10, 0).left_out({"0": 1_000, "1": 3}, 0, 0) == {"0": 993}


def test_what_was_read_beyond_the_limit_counts():
    sampling = Sampling(10, 0)
    assert sampling.left_out({"0": 10}, 0, 0) == {}
    assert sampling.left_out({"0": 10}, 15, 1) == {"0": 5}


def test_what_was_not_used_up_is_kept_for_a_second():
    sampling = Sampling(10, 0)
    assert sampling.left_out({"0": 12}, 0, 100) == {"0": 2}


def test_partitions_take_turns_where_the_limit_is_below_their_number():
    sampling, seen, unread, read = Sampling(2, 0), set(), dict.fromkeys("0123", 5), 0
    for second in range(8):
        left_out = sampling.left_out(unread, read, second)
        read = sum(unread.values()) - sum(left_out.values())
        assert read == 2
        seen |= {key for key, count in unread.items() if left_out.get(key, 0) < count}
    assert seen == set("0123")


@given(
    st.integers(1, 50),
    st.lists(st.lists(st.integers(0, 1_000), min_size=1, max_size=4), max_size=50),
)
def test_no_more_than_the_limit_is_read_in_any_second(limit: int, appended: list[list[int]]):
    sampling, read, reads = Sampling(limit, 0), 0, []
    for frame, counts in enumerate(appended):
        unread = dict(enumerate(counts))
        left_out = sampling.left_out(unread, read, frame * FRAME_S)
        assert all(0 < count <= unread[key] for key, count in left_out.items())
        read = sum(counts) - sum(left_out.values())
        reads.append(read)
    frames = round(1 / FRAME_S)
    # Unused reads are added.
    assert all(sum(reads[first : first + frames]) <= 2 * limit for first in range(len(reads)))
