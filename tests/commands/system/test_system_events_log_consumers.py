"""The audit log as events: each administrative change exactly once, even if the process that publishes it dies."""

from functools import partial
from uuid import UUID

import msgspec
import pytest

from rioni.commands.event_types import AddSchema, ChangeEventType, CreateEventType, DeleteEventType
from rioni.commands.subscriptions.subscriptions import (
    ChangeSubscription,
    CreateSubscription,
    DeleteSubscription,
    RecordCursorsReset,
)
from rioni.commands.system.storages import (
    AddBlacklistEntry,
    CreateStorage,
    DeleteStorage,
    RemoveBlacklistEntry,
    SetAdmins,
    SetDefaultStorage,
    SwitchFeature,
)
from rioni.commands.system.system_events import LogConsumer
from rioni.commands.timelines.timelines import CloseTimeline, StartSwitch
from rioni.domain.access.authorization import Attribute, Subject
from rioni.domain.audit_events import audit_events
from rioni.domain.errors import Unavailable
from rioni.domain.event_types.event_type import SubmittedSchema
from rioni.domain.subscriptions.subscription import InitialCursor
from rioni.domain.system.settings import Admins
from rioni.domain.system.storages import StorageEntry
from rioni.domain.system.system_events import AUDIT_FEATURE, AUDIT_LOG, SystemEvent, derived_eid, pseudonymize
from tests.support.broker import DEFAULT_ADMIN
from tests.support.builders import SCHEMA, event_type_spec, subscription_spec


NAME = "order.created"
CREATE = CreateEventType(spec=event_type_spec())
WIDER = SubmittedSchema(type="json_schema", schema=SCHEMA.replace("}}", '},"note":{"type":"string"}}', 1))
FEED = LogConsumer(AUDIT_LOG, AUDIT_FEATURE, partial(audit_events, salt="salt"))
ON, OFF = (SwitchFeature(feature=AUDIT_FEATURE, enabled=enabled) for enabled in (True, False))
ALICE = Subject(name="alice", attributes=frozenset({DEFAULT_ADMIN}))
ADMINS = Admins(**dict.fromkeys(("admins", "readers", "writers"), (Attribute("user", "alice"),)))
STORAGE = StorageEntry(id="second", storage_type="embedded", default=False)


def published(broker):
    """All events, in the order of the changes that they report."""
    return sorted(broker.events(AUDIT_LOG), key=lambda event: event["metadata"]["occurred_at"])


def summaries(events):
    """Operation, resource type and resource of events."""
    return [(event["data_op"], event["data"]["resource_type"], event["data"]["resource_id"]) for event in events]


def changes(broker, *, setup=(), commands=(), subject=ALICE):
    """The events that report on commands, after other commands that ran before the feature was switched on."""
    for command in setup:
        broker.do(command)
    feeds = broker.feeds(FEED)
    broker.do(ON)
    feeds.tick()
    before = {event["metadata"]["eid"] for event in published(broker)}
    for command in commands:
        broker.do(command, subject)
    feeds.tick()
    return [event for event in published(broker) if event["metadata"]["eid"] not in before]


def test_an_event_contains_user_operation_and_both_states(broker):
    """Reference system-event-types#audit-event, system-event-types#publisher."""
    changed = ChangeEventType(name=NAME, spec=event_type_spec(owning_application="other"))
    (event,) = changes(broker, setup=[CREATE], commands=[changed])
    data = event["data"]
    assert (event["data_type"], event["data_op"]) == ("event_type", "U")
    assert data["user"] == "alice"
    assert data["user_hash"] == pseudonymize("salt", "alice")
    for state, owner in (("previous", "shop"), ("new", "other")):
        assert data[f"{state}_object"]["owning_application"] == owner
        assert msgspec.json.decode(data[f"{state}_text"]) == data[f"{state}_object"]
    entry = broker.log.entries(broker.log.head().position - 1, 1)[0]
    metadata = event["metadata"]
    assert (metadata["flow_id"], metadata["occurred_at"]) == (entry.origin.flow_id, entry.origin.recorded_at)
    assert metadata["published_by"] == "rioni"
    assert metadata["event_type"] == AUDIT_LOG


def test_the_hash_of_a_user_is_as_in_the_contract():
    """Reference system-event-types#hashes."""
    assert pseudonymize("salt", "user-name") == "89bc5f7398509d3ce86c013c138e11357ff7f589fca9d58cfce443c27f81956c"


SUBSCRIBE = CreateSubscription(spec=subscription_spec())
BLOCK = AddBlacklistEntry(type="PRODUCER_APP", name="shop")
STATIC_CASES = [
    ("event type created", [], CREATE, [("C", "event_type", NAME), ("C", "timeline", None)], "new"),
    (
        "event type updated",
        [CREATE],
        ChangeEventType(name=NAME, spec=event_type_spec(owning_application="other")),
        [("U", "event_type", NAME)],
        "both",
    ),
    (
        "event type updated, definition and schema",
        [CREATE],
        ChangeEventType(name=NAME, spec=event_type_spec(owning_application="other", schema=WIDER)),
        [("U", "event_type", NAME)],
        "both",
    ),
    ("schema added", [CREATE], AddSchema(name=NAME, schema=WIDER), [("U", "event_type", NAME)], "both"),
    (
        "schema added that is known",
        [CREATE],
        AddSchema(name=NAME, schema=SubmittedSchema(type="json_schema", schema=SCHEMA)),
        [],
        "",
    ),
    ("event type deleted", [CREATE], DeleteEventType(name=NAME), [("D", "event_type", NAME)], "previous"),
    ("subscription created", [CREATE], SUBSCRIBE, [("C", "subscription", None)], "new"),
    ("storage created", [], CreateStorage(storage=STORAGE), [("C", "storage", "second")], "new"),
    ("storage made the default", [CreateStorage(storage=STORAGE)], SetDefaultStorage(storage_id="second"), [], ""),
    (
        "storage deleted",
        [CreateStorage(storage=STORAGE)],
        DeleteStorage(storage_id="second"),
        [("D", "storage", "second")],
        "previous",
    ),
    (
        "feature switched",
        [],
        SwitchFeature(feature="access_log_enabled", enabled=True),
        [("U", "feature", "access_log_enabled")],
        "both",
    ),
    ("feature that is on", [], ON, [], ""),
    ("collection switched off", [], OFF, [("U", "feature", AUDIT_FEATURE)], "both"),
    ("admins updated", [], SetAdmins(admins=ADMINS), [("U", "admins", "-")], "both"),
    ("blacklist put", [], BLOCK, [("C", "blacklist_entry", "PRODUCER_APP:shop")], "new"),
    ("blacklist put again", [BLOCK], BLOCK, [], ""),
    (
        "blacklist removed",
        [BLOCK],
        RemoveBlacklistEntry(type="PRODUCER_APP", name="shop"),
        [("D", "blacklist_entry", "PRODUCER_APP:shop")],
        "previous",
    ),
    ("blacklist without it", [], RemoveBlacklistEntry(type="PRODUCER_APP", name="shop"), [], ""),
]


def states_of(event):
    """The names of the states that an event contains."""
    shown = [state for state in ("previous", "new") if f"{state}_object" in event["data"]]
    assert shown == [state for state in ("previous", "new") if f"{state}_text" in event["data"]]
    return "both" if len(shown) == 2 else "".join(shown)


@pytest.mark.parametrize(
    ("setup", "command", "expected", "states"),
    [case[1:] for case in STATIC_CASES],
    ids=[case[0] for case in STATIC_CASES],
)
def test_every_change_listed_in_the_contract_is_reported(broker, setup, command, expected, states):
    """Reference system-event-types#audited-changes, system-event-types#audit-event."""
    events = changes(broker, setup=setup, commands=[command])
    assert [(operation, kind) for operation, kind, _ in summaries(events)] == [each[:2] for each in expected]
    for event, (_, _, resource) in zip(events, expected, strict=True):
        assert resource in (None, event["data"]["resource_id"])
        assert states_of(event) == states


def test_changes_of_a_subscription_are_reported_under_its_id(broker):
    """Reference system-event-types#audited-changes."""
    broker.do(CREATE)
    subscription, _ = broker.do(SUBSCRIBE)
    before, after = (
        (InitialCursor(event_type=NAME, partition="0", offset=offset),)
        for offset in ("001-0001-000000000000000007", "001-0001--1")
    )
    events = changes(
        broker,
        commands=[
            ChangeSubscription(subscription_id=subscription.id, spec=subscription_spec(annotations={"a": "b"})),
            RecordCursorsReset(subscription_id=subscription.id, cursors=after, previous=before),
            DeleteSubscription(subscription_id=subscription.id),
        ],
    )
    expected = [("U", "subscription"), ("U", "cursors"), ("D", "subscription")]
    assert summaries(events) == [(*each, subscription.id) for each in expected]
    for state, cursors in (("previous", before), ("new", after)):
        assert events[1]["data"][f"{state}_object"]["items"] == msgspec.to_builtins(list(cursors))


def test_one_command_that_changes_several_resources_gives_one_event_for_each(broker):
    feature = SwitchFeature(feature="delete_event_type_with_subscriptions", enabled=True)
    events = changes(broker, setup=[CREATE, SUBSCRIBE, feature], commands=[DeleteEventType(name=NAME)])
    assert sorted(each[:2] for each in summaries(events)) == [("D", "event_type"), ("D", "subscription")]


def test_the_events_of_a_resource_are_stored_in_the_order_of_its_changes(broker):
    """Reference system-event-types#audit-order."""
    feeds = broker.feeds(FEED)
    for command in (ON, CREATE):
        broker.do(command)
    owners = [f"owner-{number}" for number in range(6)]
    for number, owner in enumerate(owners):
        broker.do(ChangeEventType(name=NAME, spec=event_type_spec(owning_application=owner)))
        broker.do(AddBlacklistEntry(type="PRODUCER_APP", name="shop"))
        broker.do(RemoveBlacklistEntry(type="PRODUCER_APP", name="shop"))
        if number % 2:
            feeds.tick()
    feeds.tick()
    stored = broker.events(AUDIT_LOG)
    assert broker.registry.timelines(AUDIT_LOG).active.partitions > 1
    changed = [event["data"]["new_object"] for event in stored if event["data"]["resource_id"] == NAME]
    assert [each["owning_application"] for each in changed] == ["shop", *owners]
    blocked = [event["data_op"] for event in stored if event["data"]["resource_id"] == "PRODUCER_APP:shop"]
    assert blocked == ["C", "D"] * len(owners)


# --- begin and end of reporting ---


def test_without_the_feature_nothing_is_published(broker):
    broker.feeds(FEED).tick()
    broker.do(CREATE)
    broker.feeds(FEED).tick()
    broker.registry.refresh()
    assert [each.name for each in broker.registry.event_types()] == [NAME]


def test_changes_while_the_feature_is_off_are_not_reported(broker):
    """Reference system-event-types#audited-changes."""
    broker.do(CREATE)
    for command in (ON, BLOCK, OFF, DeleteEventType(name=NAME)):
        broker.do(command)
    broker.feeds(FEED).tick()
    expected = [("U", "feature", AUDIT_FEATURE), ("C", "blacklist_entry", "PRODUCER_APP:shop")]
    assert summaries(published(broker)) == [*expected, expected[0]]


def test_the_creation_of_the_audit_log_event_type_is_reported_once(broker):
    feeds = broker.feeds(FEED)
    broker.do(ON)
    feeds.tick()
    feeds.tick()
    own = [event["data"] for event in published(broker) if event["data"]["user"] == "rioni"]
    created = [each for each in own if each["resource_type"] != "feature"]
    assert {(each["resource_type"], each["new_object"].get("name", "-")) for each in created} == {
        ("event_type", AUDIT_LOG),
        ("timeline", "-"),
    }
    head = broker.log.head()
    feeds.tick()
    assert broker.log.head() == head


def test_nothing_is_lost_while_the_broker_may_not_write(broker):
    """Reference system-event-types#creation."""
    feeds = broker.feeds(FEED)
    broker.do(ON)
    broker.do(SwitchFeature(feature="disable_db_write_operations", enabled=True))
    feeds.tick()
    broker.do(SwitchFeature(feature="disable_db_write_operations", enabled=False))
    feeds.tick()
    features = ["disable_db_write_operations", "disable_db_write_operations", AUDIT_FEATURE]
    assert sorted(event["data"]["resource_id"] for event in published(broker) if event["data_op"] == "U") == sorted(
        features
    )


def test_features_that_forbid_creating_event_types_do_not_apply_to_the_broker(broker):
    broker.do(SwitchFeature(feature="disable_event_type_creation", enabled=True))
    broker.do(SwitchFeature(feature="force_event_type_authz", enabled=True))
    broker.do(ON)
    broker.feeds(FEED).tick()
    assert published(broker)


# --- exactly once ---


def test_during_a_timeline_switch_the_audit_log_waits_and_reports_everything_once(broker):
    feeds = broker.feeds(FEED)
    broker.do(ON)
    feeds.tick()
    timeline = broker.start_switch(AUDIT_LOG)
    broker.store.create_topic(timeline.topic, timeline.partitions)
    broker.store.close_topic(broker.registry.timelines(AUDIT_LOG).active.topic)
    before = published(broker)
    broker.do(BLOCK)
    feeds.tick()
    assert published(broker) == before
    broker.do(CloseTimeline(event_type=AUDIT_LOG, timeline=timeline))
    for _ in range(2):
        feeds.tick()
    reported = [("C", "blacklist_entry", "PRODUCER_APP:shop"), ("C", "timeline", timeline.id)]
    assert summaries(published(broker)) == reported


def test_events_stored_before_a_switch_are_not_stored_again_after_it_even_in_another_storage(broker):
    broker.do(CreateStorage(storage=STORAGE))
    broker.system_event_types.ensure_one(AUDIT_LOG)
    data = {"resource_type": "x", "resource_id": "1", "user": "alice", "user_hash": "x"}
    event = SystemEvent(
        eid=derived_eid(UUID(int=1), "x"),
        occurred_at="2026-11-20T10:00:00.000Z",
        flow_id="",
        members={"data_type": "x", "data_op": "C", "data": data},
    )
    broker.services.system_publisher.publish(AUDIT_LOG, [event], name="1")
    assert len(published(broker)) == 1
    broker.timeline_switcher.switch(StartSwitch(event_type=AUDIT_LOG, storage_id=STORAGE.id), broker.context())
    broker.registry.refresh()
    broker.services.system_publisher.publish(AUDIT_LOG, [event], name="1")
    assert published(broker) == []
    broker.services.system_publisher.publish(AUDIT_LOG, [event], name="2")
    assert len(published(broker)) == 1


class Interrupted(Exception):
    """Raised when the process dies."""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_that_dies_around_storing_neither_loses_nor_duplicates_events(broker, monkeypatch, moment):
    """Reference system-event-types#exactly-once."""
    feeds = broker.feeds(FEED)
    broker.do(ON)
    feeds.tick()
    broker.do(CREATE)
    append = type(broker.store).append

    def dying(*args, **kwargs):
        if moment == "after":
            append(*args, **kwargs)
        raise Unavailable(moment)

    with monkeypatch.context() as patch:
        patch.setattr(type(broker.store), "append", dying)
        feeds.tick()
    feeds.close()
    broker.feeds(FEED).tick()
    eids = [event["metadata"]["eid"] for event in published(broker)]
    assert len(eids) == len(set(eids))
    assert summaries(published(broker)).count(("C", "event_type", NAME)) == 1


@pytest.mark.parametrize("dies_at", [1, 2])
def test_a_command_of_several_transactions_is_reported_once_wherever_the_process_dies(broker, monkeypatch, dies_at):
    """Creations have several transactions, or a switch that first completes another one."""
    feeds = broker.feeds(FEED)
    broker.do(ON)
    feeds.tick()
    mine, append = broker.context(), type(broker.store).append
    outside = broker.bus.transact(CreateEventType(spec=CREATE.spec, is_schema_checked=True), mine)
    feeds.tick()

    def dying(*args, **kwargs):
        append(*args, **kwargs)
        raise Unavailable("dead")

    for number, command in enumerate([outside.work(), BLOCK], 1):
        broker.bus.transact(command, mine)
        if number == dies_at:
            with monkeypatch.context() as patch:
                patch.setattr(type(broker.store), "append", dying)
                feeds.tick()
            feeds.close()
    broker.feeds(FEED).tick()
    eids = [event["metadata"]["eid"] for event in published(broker)]
    assert len(eids) == len(set(eids))
    reported = summaries(published(broker))
    assert (
        reported.count(("C", "event_type", NAME)) == reported.count(("C", "blacklist_entry", "PRODUCER_APP:shop")) == 1
    )


def test_only_one_process_publishes_and_another_one_continues_where_it_ended(broker):
    first, second = broker.feeds(FEED), broker.feeds(FEED)
    broker.do(ON)
    first.tick()
    broker.do(BLOCK)
    second.tick()
    assert ("C", "blacklist_entry", "PRODUCER_APP:shop") not in summaries(published(broker))
    first.close()
    second.tick()
    eids = [event["metadata"]["eid"] for event in published(broker)]
    assert len(eids) == len(set(eids))
    assert summaries(published(broker)).count(("C", "blacklist_entry", "PRODUCER_APP:shop")) == 1


def test_a_change_of_a_resource_of_maximum_size_is_reported(broker):
    """Reference system-event-types#publisher."""
    schema = SCHEMA.replace('"string"', '"string","description":"%s"' % ("x" * 260_000), 1)
    spec = event_type_spec(schema=SubmittedSchema(type="json_schema", schema=schema))
    wider = event_type_spec(schema=SubmittedSchema(type="json_schema", schema=schema + " "), audience="external-public")
    events = changes(broker, setup=[CreateEventType(spec=spec)], commands=[ChangeEventType(name=NAME, spec=wider)])
    assert len(msgspec.json.encode(events[0])) > broker.limits.event_bytes_max


def test_the_lag_of_a_log_consumer_is_shown_while_it_can_not_publish(broker):
    feeds = broker.feeds(FEED)
    assert feeds.behind() == {AUDIT_LOG: 0}
    broker.do(ON)
    broker.do(SwitchFeature(feature="disable_db_write_operations", enabled=True))
    feeds.tick()
    assert feeds.behind()[AUDIT_LOG] > 0
    broker.do(SwitchFeature(feature="disable_db_write_operations", enabled=False))
    feeds.tick()
    feeds.tick()
    assert feeds.behind() == {AUDIT_LOG: 0}
