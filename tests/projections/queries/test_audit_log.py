import contextlib
from functools import partial

import pytest

from rioni.commands.event_types import CreateEventType, DeleteEventType
from rioni.commands.system.storages import SwitchFeature
from rioni.projections.queries import audit_log
from rioni.projections.queries.audit_log import AuditFilter, entries
from rioni.storage.sql.engines import reading
from tests.support.builders import event_type_spec


@pytest.fixture
def found(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    broker.do(SwitchFeature(feature="kpi_collection", enabled=True))
    broker.do(DeleteEventType(name="order.created"))

    def found(after=0, **wanted):
        begin = partial(reading, broker.engine)
        return [each["topic"] for each in entries(begin, AuditFilter(**wanted), after=after)]

    return found


ALL = [
    "storage.created",
    "topic-creation.started",
    "topic-creation.ended",
    "event-type.created",
    "timeline.opened",
    "settings.feature-switched",
    "timeline.deleted",
    "event-type.deleted",
    "topic.abandoned",
]


@pytest.mark.parametrize(
    ("wanted", "topics"),
    [
        ({}, ALL),
        ({"after": 6}, ALL[6:]),
        ({"resource": "order.created"}, [ALL[3], ALL[4], ALL[6], ALL[7]]),
        ({"resource": "event-type:order.created"}, [ALL[3], ALL[7]]),
        ({"actor": "rioni"}, ALL),
        ({"actor": "nobody"}, []),
        ({"since": "2026-11-20T10:00:02.000Z", "until": "2026-11-20T10:00:03.000Z"}, ALL[5:6]),
    ],
)
def test_entries_are_found_by_time_actor_and_resource(found, wanted, topics):
    assert found(**wanted) == topics


@pytest.mark.usefixtures("found")
def test_no_transaction_stays_open_for_a_slow_reader(broker, monkeypatch):
    monkeypatch.setattr(audit_log, "ENTRIES_PER_READ", 4)
    under_way = set()

    @contextlib.contextmanager
    def begin():
        with reading(broker.engine) as connection:
            under_way.add(connection)
            yield connection
            under_way.remove(connection)

    seen = []
    for each in entries(begin, AuditFilter()):
        assert not under_way
        seen.append(each["topic"])
    assert seen == ALL
