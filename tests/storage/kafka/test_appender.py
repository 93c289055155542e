from collections import defaultdict

import pytest

from rioni.domain.errors import TopicClosed
from rioni.domain.ports.event_store import StoreMeasurements
from tests.contracts.event_store import TOPIC, events, read_all
from tests.support.waiting import WAIT_S


pytestmark = pytest.mark.kafka


def test_the_store_reports_its_measurements(open_store, signals):
    measured: dict[str, list[float]] = defaultdict(list)
    store = open_store(measurements=StoreMeasurements(*(measured[name].append for name in StoreMeasurements._fields)))
    store.create_topic(TOPIC, 2)
    store.append(TOPIC, {0: events(1)})
    assert len(measured["append_seconds"]) == 1
    assert measured["append_seconds"][0] > 0
    read_all(store, TOPIC, 0)
    assert sum(measured["loaded_bytes"]) == len(events(1)[0])
    watch = signals.watch([f"topic:{TOPIC}"])
    store.append(TOPIC, {0: events(2), 1: events(3)})
    while measured["events_behind"][-1:] != [0]:
        assert watch.wait(WAIT_S)
    watch.close()
    store.close_topic(TOPIC)
    with pytest.raises(TopicClosed):
        store.append(TOPIC, {0: events(4)})
    assert sum(measured["failed_batches"]) == 1
