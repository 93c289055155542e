from rioni.domain.ports.coordinator import DeliveryFailure
from rioni.domain.timelines.position import format_offset
from rioni.storage.zookeeper.nodes import CommitProgress, decode_progress


def at(position: int) -> str:
    return format_offset(1, position)


NEW = CommitProgress(at(-1))


def test_only_an_owner_whose_term_has_ended_has_failed():
    sent = NEW.attempted(at(4), 3, None)
    assert sent.delivery_failure(3) is None
    assert sent.delivery_failure(5) == DeliveryFailure(1, at(4), "")
    assert sent.settled(5).settled(5).settled(7) == sent.settled(5)


def test_the_same_stream_fails_in_each_of_its_terms():
    failed = NEW.attempted(at(4), 3, None).attempted(at(4), 5, None).attempted(at(4), 7, None)
    assert failed.delivery_failure(9) == DeliveryFailure(3, at(4), "")


def test_a_committed_partition_has_not_failed():
    sent = NEW.attempted(at(4), 3, None)
    assert sent.advanced(at(4), 3).delivery_failure(5) is None
    assert sent.advanced(at(3), 3).delivery_failure(5) == DeliveryFailure(1, at(4), "")
    assert sent.advanced(at(3), 5).delivery_failure(5) is None


def test_a_heartbeat_and_a_poison_search_change_nothing_else():
    beaten = NEW.confirmed().confirmed()
    assert beaten == CommitProgress(at(-1), heartbeats=2)
    searching = beaten.attempted(at(4), 3, at(9))
    assert searching.heartbeats == 2
    assert searching.delivery_failure(3) == DeliveryFailure(0, at(4), at(9))


def test_the_stored_form_is_short_and_complete():
    assert NEW.encoded() == b'{"offset":"001-0001--1"}'
    full = CommitProgress(at(1), 2, at(3), 4, at(5), 6, at(7), "why")
    assert decode_progress(full.encoded()) == full
