import pytest

from rioni.domain.errors import NotFound, Unavailable
from rioni.storage.kafka.client import KafkaConnection, TopicPartitionRef
from rioni.storage.kafka.record_reads import RecordTimes
from tests.contracts.event_store import TOPIC, events


pytestmark = pytest.mark.kafka


def test_asking_when_an_event_was_stored_leaves_what_streams_read_as_it_is(store, other_store, clock):
    store.create_topic(TOPIC, 2)
    store.append(TOPIC, {0: events(1, 2)})
    assert other_store.recorded_at_ms(TOPIC, 0, 1) == clock.now_ms()
    assert other_store.recorded_at_ms(TOPIC, 1, 0) is None
    assert other_store._follower._topics == {}
    assert other_store._cache._memory.bytes == 0


def test_many_callers_have_consumers_of_their_own_of_which_one_is_kept(store, connection, clock):
    store.create_topic(TOPIC, 1)
    store.append(TOPIC, {0: events(1)})
    times, place = RecordTimes(connection), TopicPartitionRef(connection.topic_prefix + TOPIC, 0)
    taken = [times._take() for _ in range(3)]
    assert times.recorded_at_ms(place, 0) == clock.now_ms()
    for each in taken:
        times._release(each)
    assert len(times._idle) == 1
    times.close()
    assert times._idle == []


def test_a_failure_closes_the_consumer(connection):
    times = RecordTimes(connection)
    with pytest.raises(NotFound):
        times.recorded_at_ms(TopicPartitionRef(connection.topic_prefix + "unknown", 0), 0)
    assert times._idle == []


def test_kafka_that_does_not_answer_is_unavailable():
    times = RecordTimes(KafkaConnection(bootstrap_servers="127.0.0.1:1", request_timeout_s=0.5))
    with pytest.raises(Unavailable):
        times.recorded_at_ms(TopicPartitionRef(TOPIC, 0), 0)
