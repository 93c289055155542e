import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from rioni.domain.publishing.headers import Headers
from rioni.domain.timelines.timeline import Timeline
from rioni.storage.kafka.topics.topics import UNCLEAN
from rioni.storage.kafka.verification import verify
from tests.contracts.event_store import TOPIC, events
from tests.support.waiting import WAIT_S, wait_until


pytestmark = pytest.mark.kafka


def timeline(partitions=2, latest_position=None):
    return Timeline(
        id="1",
        event_type="orders",
        order=1,
        storage_id="kafka",
        topic=TOPIC,
        partitions=partitions,
        created_at="",
        switched_at="",
        latest_position=latest_position,
    )


@pytest.fixture
def found(store):
    store.create_topic(TOPIC, 2)
    store.append(TOPIC, {0: events(*range(2_500))})
    store.append(TOPIC, {1: [*events("a"), b""]}, headers={1: [Headers(key="a")] * 2})

    def found(*args, compacted=False, **kwargs):
        return list(verify(store, timeline(*args, **kwargs), compacted=compacted))

    return found


def test_an_intact_timeline_has_no_findings_before_and_after_retention(found, store, connection):
    assert found() == []
    removed = [TopicPartition(connection.topic_prefix + TOPIC, 0, 1_000)]
    admin = AdminClient(connection.client())
    for answer in admin.delete_records(removed, request_timeout=10).values():
        answer.result(WAIT_S)
    assert found() == []
    assert found(latest_position=(2_499, 1)) == []


def test_records_of_foreign_producers_are_reported(found, connection):
    producer = Producer(connection.client())
    for value, key in ((b"{no json", None), (None, None), (None, b""), (b"{}", None)):
        producer.produce(connection.topic_prefix + TOPIC, value, key, 1)
    producer.flush()
    where = f"topic {TOPIC}, partition 1, position"
    assert found() == [f"{where} 2: no JSON", f"{where} 3: a deletion without a key", f"{where} 4: missing"]
    assert found(compacted=True) == [f"{where} 2: no JSON", f"{where} 3: a deletion without a key"]


def test_a_timeline_that_does_not_end_where_it_was_closed_is_reported(found):
    assert found(latest_position=(2_499, 3)) == [f"topic {TOPIC}, partition 1: ends at 1, and was closed at 3"]


def test_missing_topics_and_partitions_are_reported(found, store):
    assert found(partitions=3) == [f"topic {TOPIC}: has 2 partitions, not 3"]
    store.delete_topic(TOPIC)
    assert found() == [f"topic {TOPIC}: there is none"]


def expire(store):
    store.delete_before(TOPIC, 1)


def compact(store):
    store.compact(TOPIC, 1)


def allow_unclean_leaders(connection):
    resource = ConfigResource(
        ResourceType.TOPIC,
        connection.topic_prefix + TOPIC,
        incremental_configs=[ConfigEntry(UNCLEAN, None, incremental_operation=AlterConfigOpType.DELETE)],
    )
    admin = AdminClient(connection.client())
    (answer,) = admin.incremental_alter_configs([resource]).values()
    answer.result(WAIT_S)


@pytest.mark.parametrize("make_safe", [expire, compact])
def test_topics_with_unclean_leader_election_are_reported_until_it_is_forbidden(
    found, store, open_store, connection, make_safe
):
    allow_unclean_leaders(connection)
    (finding,) = found()
    assert finding.startswith(f"topic {TOPIC}: {UNCLEAN} is not set to false")
    make_safe(store)
    wait_until(lambda: not found(compacted=True))
    # The configuration is cached; only another process queries it again.
    allow_unclean_leaders(connection)
    wait_until(found)
    make_safe(store)
    assert found()
    make_safe(open_store())
    wait_until(lambda: not found(compacted=True))
