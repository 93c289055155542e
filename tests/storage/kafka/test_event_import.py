from array import array

import pytest

from rioni.domain.errors import Conflict
from rioni.domain.ports.event_store import Chunk
from rioni.domain.publishing.headers import COMPACTED, NO_HEADERS, Headers
from rioni.domain.timelines.position import Bounds
from rioni.storage.kafka.event_import import EventImporter
from tests.contracts.event_store import read_all, read_headers


TOPIC = "imported"
KEY = Headers(key="k")


@pytest.fixture
def event_import(connection):
    return EventImporter(connection)


@pytest.fixture
def topic(store):
    store.create_topic(TOPIC, 2)
    return TOPIC


def chunk(first, recorded_at_ms, *events, headers=None):
    ends = array("I")
    for event in events:
        ends.append((ends[-1] + 1 if ends else 0) + len(event))
    return Chunk(first, recorded_at_ms, b",".join(events), ends, headers)


def test_events_keep_their_positions_times_and_headers(event_import, store, topic):
    chunks = [chunk(0, 1_000, b'{"a":1}', b'{"a":2}'), chunk(2, 2_000, b"", b'{"a":4}', headers=[KEY, NO_HEADERS])]
    event_import.write(topic, 1, 0, chunks)
    assert read_all(store, topic, 1) == [b'{"a":1}', b'{"a":2}', b"", b'{"a":4}']
    assert read_headers(store, topic, 1) == [NO_HEADERS, NO_HEADERS, KEY, NO_HEADERS]
    assert [store.recorded_at_ms(topic, 1, place) for place in range(4)] == [1_000, 1_000, 2_000, 2_000]
    assert store.bounds(topic) == [Bounds(0, -1), Bounds(0, 3)]


def test_an_import_continues_within_a_chunk(event_import, store, topic):
    whole = chunk(0, 1_000, b'{"a":1}', b'{"a":2}', b'{"a":3}')
    event_import.write(topic, 0, 0, [chunk(0, 1_000, b'{"a":1}')])
    event_import.write(topic, 0, 1, [whole])
    assert read_all(store, topic, 0) == [b'{"a":1}', b'{"a":2}', b'{"a":3}']


def test_positions_missing_in_the_source_are_missing_in_the_copy(event_import, store, topic):
    event_import.write(topic, 0, 0, [chunk(3, 1_000, b'{"a":4}'), chunk(6, 1_000, b'{"a":7}')])
    event_import.skip(topic, 0, 7, 9, 1_000)
    event_import.remove_before(topic, 0, 3)
    assert store.bounds(topic)[0] == Bounds(3, 8)
    assert read_all(store, topic, 0, first=3) == [b'{"a":4}', b"", b"", b'{"a":7}', b"", b""]
    assert read_headers(store, topic, 0, oldest=3)[1:3] == [COMPACTED, COMPACTED]


def test_a_partition_written_by_another_producer_is_rejected(event_import, store, topic):
    store.append(topic, {0: [b'{"other":1}']})
    with pytest.raises(Conflict, match="another producer writes to it"):
        event_import.write(topic, 0, 0, [chunk(0, 1_000, b'{"a":1}')])
