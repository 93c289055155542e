"""Repeated publishing: a batch with one idempotency key, or an event with one id, is stored once, despite failures."""

import json
from random import Random
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.commands.event_types import ChangeEventType, CreateEventType, DeleteEventType
from rioni.commands.publisher import Publisher, PublishEvents
from rioni.commands.system.storages import CreateStorage
from rioni.commands.timeline_appender import TimelineAppender
from rioni.commands.timelines.timelines import CleanUpTimeline, StartSwitch
from rioni.domain.access.authorization import BROKER, Subject
from rioni.domain.errors import IdempotencyKeyReused, Malformed
from rioni.domain.event_types.event_type import Statistic, SubmittedSchema
from rioni.domain.ports.host import direct
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timelines.position import TimelinePosition
from rioni.projections.queries.timeline_reader import read_after
from tests.support.broker import running_broker
from tests.support.builders import LATER_MS, as_spec, event_type_spec
from tests.support.memory import DiesAfterAppend, SingleStore


NAME = "order.created"
FOUR_PARTITIONS = Statistic(messages_per_minute=1, message_size=1, read_parallelism=4, write_parallelism=4)
METADATA = {"eid": "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11", "occurred_at": "2026-11-20T10:00:00Z"}


def order(order_id):
    return {"order_id": order_id, "metadata": METADATA}


def publish(broker, *events, key="mine", subject=BROKER, publisher=None, **says):
    body = json.dumps(events).encode()
    command = PublishEvents(event_type=NAME, body=body, flow_id="flow", idempotency_key=key, **says)
    return (publisher or broker.publisher).publish(command, subject)


def stored(broker):
    broker.registry.refresh()
    chunks = broker.store.read(broker.registry.timelines(NAME).active.topic, 0, 0, 1_000_000)
    events = [event for chunk in chunks for event in json.loads(b"[" + chunk.cut(chunk.first, chunk.next) + b"]")]
    return [event["order_id"] for event in events]


@pytest.fixture
def broker(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    return broker


def test_namesakes_in_other_realms_have_idempotency_keys_of_their_own(broker):
    """Reference publishing#idempotency-keys."""
    subjects = [Subject(name="shop", realm=realm) for realm in ("", "services", "employees")]
    for number, subject in enumerate(subjects):
        assert publish(broker, order(str(number)), subject=subject).events == 1
    for subject in subjects:
        assert publish(broker, order("1"), order("1"), subject=subject, key="same").events == 2
        assert publish(broker, order("1"), order("1"), subject=subject, key="same").duplicates == 2
    assert stored(broker) == ["0", "1", "2"] + 6 * ["1"]


def test_a_batch_that_a_release_without_realms_has_stored_is_not_stored_again(broker):
    shop = Subject(name="shop", realm="services")
    # Earlier releases identified clients by name.
    assert publish(broker, order("1"), subject=Subject(name="shop", unrestricted=True)).events == 1
    assert publish(broker, order("1"), subject=shop).duplicates == 1
    assert publish(broker, order("2"), subject=shop).events == 1, "its key was that of a namesake"
    assert stored(broker) == ["1", "2"]


def test_a_repetition_stores_nothing_and_is_counted_as_duplicates(broker):
    """Reference publishing#idempotency-keys."""
    first = publish(broker, order("1"), order("2"))
    again = publish(broker, order("1"), order("2"))
    assert (first.events, first.duplicates) == (2, 0)
    assert (again.events, again.duplicates, again.rejected) == (0, 2, ())
    assert stored(broker) == ["1", "2"]


def test_a_repetition_goes_to_the_same_partitions_as_the_batch(tmp_path):
    """Reference publishing#random-strategy."""

    def partitions(key):
        with running_broker(tmp_path / str(uuid4())) as broker:
            broker.do(CreateEventType(spec=event_type_spec(default_statistic=FOUR_PARTITIONS)))
            publish(broker, *(order(str(number)) for number in range(20)), key=key)
            return broker.store.newest(broker.registry.timelines(NAME).active.topic)

    # So a batch that was stored in part is completed.
    assert partitions("mine") == partitions("mine")
    assert partitions("mine") != partitions("another")


@pytest.mark.parametrize(
    "changes", [{"order_id": "2"}, {"subscription_id": METADATA["eid"]}], ids=["another body", "for a subscription"]
)
def test_another_batch_needs_another_key(broker, changes):
    """Reference publishing#reused-keys."""
    publish(broker, order("1"))
    order_id = changes.pop("order_id", "1")
    with pytest.raises(IdempotencyKeyReused):
        publish(broker, order(order_id), **changes)
    assert stored(broker) == ["1"]


def test_an_unparsable_body_is_malformed_whatever_its_key(broker):
    """Reference publishing#steps."""
    publish(broker, order("1"))
    command = PublishEvents(event_type=NAME, body=b"[{]", flow_id="flow", idempotency_key="mine")
    with pytest.raises(Malformed):
        broker.publisher.publish(command, BROKER)


def test_keys_are_separate_for_each_client(broker):
    """Reference publishing#idempotency-keys."""
    for name in ("alice", "bob"):
        assert publish(broker, order(name), subject=Subject(name=name)).events == 1
    assert stored(broker) == ["alice", "bob"]


def test_a_repetition_is_answered_as_before_even_if_it_would_be_rejected_now(broker):
    publish(broker, order("1"))
    stricter = {
        "type": "object",
        "properties": {"order_id": {"type": "string"}, "x": {}},
        "required": ["order_id", "x"],
    }
    spec = as_spec(broker.registry.event_type(NAME))
    schema = SubmittedSchema(type="json_schema", schema=json.dumps(stricter))
    broker.do(ChangeEventType(name=NAME, spec=msgspec.structs.replace(spec, schema=schema)))
    assert publish(broker, order("1"), key="other").rejected
    assert publish(broker, order("1")).duplicates == 1


def test_a_rejected_batch_may_be_corrected_under_the_same_key(broker):
    """Reference publishing#reused-keys."""
    assert publish(broker, order(1)).rejected
    assert publish(broker, order("1")).events == 1


def losing_answers(broker):
    """A publisher whose store dies between writing and answering."""
    stores = SingleStore(DiesAfterAppend(broker.store))
    timeline = TimelineAppender(broker.registry, stores, broker.signals, broker.clock, wait_max_s=0)
    return Publisher(broker.registry, broker.access, timeline, broker.clock, Random(1), broker.limits, direct)


def test_a_batch_whose_answer_was_lost_is_stored_once(broker):
    dying = losing_answers(broker)
    first = publish(broker, order("1"), publisher=dying)
    assert [(item.publishing_status, item.step, item.detail) for item in first.partly] == [
        ("failed", "publishing", "timed out")
    ]
    assert publish(broker, order("1")).duplicates == 1
    assert stored(broker) == ["1"]


REQUESTS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.booleans()), max_size=15)


@given(REQUESTS)
def test_batches_repeated_any_number_of_times_in_any_order_are_stored_once_each(tmp_path_factory, requests):
    """Some answers are lost on the way: the client does not know the outcome, and publishes again."""
    with running_broker(tmp_path_factory.mktemp("data") / "data") as broker:
        broker.do(CreateEventType(spec=event_type_spec()))
        dying = losing_answers(broker)
        first: dict[str, str] = {}
        for key, order_id, lost in requests:
            try:
                publish(broker, order(order_id), key=key, publisher=dying if lost else None)
            except IdempotencyKeyReused:
                assert first[key] != order_id
            else:
                assert first.setdefault(key, order_id) == order_id
        assert stored(broker) == list(first.values())


# --- event types that store an eid once ---

EIDS = [f"{number:08d}-3c52-4d8c-9b50-0f2b7f6d2a11" for number in range(4)]


def with_eid(number):
    return {"order_id": str(number), "metadata": {**METADATA, "eid": EIDS[number]}}


BATCHES = st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=8)


@given(BATCHES)
def test_an_eid_is_stored_once_over_all_batches(tmp_path_factory, batches):
    """Reference publishing#event-ids."""
    with running_broker(tmp_path_factory.mktemp("data") / "data") as broker:
        annotations = {"rioni.io/idempotent-publishing": "on"}
        broker.do(CreateEventType(spec=event_type_spec(annotations=annotations)))
        counted = 0
        for batch in batches:
            published = publish(broker, *map(with_eid, batch), key=None)
            counted += published.events
            assert published.events + published.duplicates == len(batch)
        first_seen = dict.fromkeys(str(number) for batch in batches for number in batch)
        assert stored(broker) == list(first_seen)
        assert counted == len(first_seen)


def test_an_event_for_one_subscription_alone_makes_no_other_event_a_duplicate(broker):
    """Reference publishing#event-ids."""
    broker.do(DeleteEventType(name=NAME))
    broker.do(CreateEventType(spec=event_type_spec(annotations={"rioni.io/idempotent-publishing": "on"})))
    eve, bob = Subject(name="eve"), Subject(name="bob")
    for _ in range(2):
        publish(broker, with_eid(0), key=None, subject=eve, subscription_id=METADATA["eid"])
    assert stored(broker) == ["0"]
    assert publish(broker, with_eid(0), key=None, subject=bob).events == 1
    assert publish(broker, with_eid(0), key=None, subject=eve, subscription_id=str(uuid4())).events == 1
    assert publish(broker, with_eid(0), key=None, subject=bob).duplicates == 1
    assert stored(broker) == 3 * ["0"]


def test_an_eid_may_be_stored_again_for_an_event_type_that_is_created_again(broker):
    for _ in range(2):
        broker.do(DeleteEventType(name=NAME))
        broker.do(CreateEventType(spec=event_type_spec(annotations={"rioni.io/idempotent-publishing": "on"})))
        assert publish(broker, with_eid(0), key=None).events == 1
        assert publish(broker, with_eid(0), key=None).duplicates == 1


def test_switching_deduplication_on_or_off_applies_from_the_next_batch_on(broker):
    broker.registry.refresh()
    for switch, events in (("on", 1), ("on", 0), ("off", 1), ("on", 0)):
        spec = as_spec(broker.registry.event_type(NAME))
        annotations = {"rioni.io/idempotent-publishing": switch}
        broker.do(ChangeEventType(name=NAME, spec=msgspec.structs.replace(spec, annotations=annotations)))
        assert publish(broker, with_eid(0), key=None).events == events


# --- event types that move to another storage ---


@pytest.fixture
def elsewhere(broker):
    """A second storage that event types may move to."""
    broker.do(CreateStorage(storage=StorageEntry(id="elsewhere", storage_type="embedded", default=False)))
    return "elsewhere"


def switch(broker, storage_id):
    broker.timeline_switcher.switch(StartSwitch(event_type=NAME, storage_id=storage_id), broker.context())


class RunsBeforeAppend(DiesAfterAppend):
    """A store that runs a callback just before the first append."""

    def __init__(self, store, happens):
        super().__init__(store)
        self._happens = happens

    def append(self, topic, batches, **options):
        happens, self._happens = self._happens, lambda: None
        happens()
        return self._store.append(topic, batches, **options)


class WithReplacement:
    """All storages, one of them replaced."""

    def __init__(self, stores, store):
        self._stores, self._store = stores, store

    def of(self, storage_id):
        return self._store if storage_id == "default" else self._stores.of(storage_id)


def overtaken(broker, happens):
    """A publisher with a callback between its look-up of stored events and its append."""
    stores = WithReplacement(broker.stores, RunsBeforeAppend(broker.store, happens))
    timeline = TimelineAppender(broker.registry, stores, broker.signals, broker.clock, wait_max_s=0)
    return Publisher(broker.registry, broker.access, timeline, broker.clock, Random(1), broker.limits, direct)


def everything(broker):
    """The order ids in all timelines."""
    broker.registry.refresh()
    timelines = broker.registry.timelines(NAME)
    found, place = [], TimelinePosition(1, -1)
    while True:
        timeline, chunks = read_after(timelines, broker.stores, 0, place, 1_000_000)
        if not chunks:
            return found
        found += [each["order_id"] for one in chunks for each in json.loads(b"[%b]" % one.data)]
        place = TimelinePosition(timeline, chunks[-1].next - 1)


def test_a_batch_that_is_repeated_while_its_event_type_moves_is_stored_once(broker, elsewhere):
    """Reference timelines#deduplication-across-timelines."""

    def the_first_is_stored_and_the_event_type_moves():
        assert publish(broker, order("1")).events == 1
        switch(broker, elsewhere)

    publisher = overtaken(broker, the_first_is_stored_and_the_event_type_moves)
    assert publish(broker, order("1"), publisher=publisher).duplicates == 1
    assert everything(broker) == ["1"]
    with pytest.raises(IdempotencyKeyReused):
        publish(broker, order("2"))


@pytest.mark.parametrize("moves", ["before", "amid"])
def test_an_eid_is_stored_once_though_its_event_type_moves(broker, elsewhere, moves):
    """Reference timelines#deduplication-across-timelines."""
    broker.registry.refresh()
    spec = as_spec(broker.registry.event_type(NAME))
    annotations = {"rioni.io/idempotent-publishing": "on"}
    broker.do(ChangeEventType(name=NAME, spec=msgspec.structs.replace(spec, annotations=annotations)))

    def the_first_is_stored_and_the_event_type_moves():
        assert publish(broker, with_eid(0), with_eid(1), key=None).events == 2
        switch(broker, elsewhere)

    if moves == "before":
        the_first_is_stored_and_the_event_type_moves()
        publisher = None
    else:
        publisher = overtaken(broker, the_first_is_stored_and_the_event_type_moves)
    again = publish(broker, with_eid(1), with_eid(2), with_eid(0), key=None, publisher=publisher)
    assert (again.events, again.duplicates) == (1, 2)
    assert publish(broker, with_eid(0), key=None).duplicates == 1
    assert everything(broker) == ["0", "1", "2"]


def test_keys_and_eids_outlive_the_timeline_of_their_events(broker, elsewhere):
    publish(broker, order("1"))
    switch(broker, elsewhere)
    broker.do(CleanUpTimeline(event_type=NAME, order=1, now_ms=LATER_MS))
    assert publish(broker, order("1")).duplicates == 1
    assert everything(broker) == []
