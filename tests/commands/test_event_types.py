import pytest

from rioni.commands.event_types import ChangeEventType, CreateEventType, DeleteEventType
from rioni.commands.subscriptions.subscriptions import CreateSubscription
from rioni.commands.system.storages import SwitchFeature
from rioni.domain.access.authorization import Attribute, EventTypeAuthorization, Subject
from rioni.domain.errors import (
    AccessDenied,
    AdminOnly,
    Conflict,
    EventTypeNotFound,
    FeatureDisabled,
    Invalid,
    NotFound,
    ReadOnly,
)
from rioni.domain.event_types.event_type import Statistic, SubmittedSchema
from rioni.domain.timelines.position import Bounds
from tests.support.broker import DEFAULT_ADMIN
from tests.support.builders import SCHEMA, as_spec, context, event_type_spec, subscription_spec


NAME = "order.created"
CREATE = CreateEventType(spec=event_type_spec())
ALICE = Subject(name="alice", attributes=frozenset({Attribute("user", "alice")}))
BOB = Subject(name="bob", attributes=frozenset({Attribute("user", "bob")}))
ADMIN = Subject(name="admin", attributes=frozenset({DEFAULT_ADMIN}))
ALICES = EventTypeAuthorization(
    admins=(Attribute("user", "alice"),), readers=(Attribute("user", "alice"),), writers=(Attribute("user", "alice"),)
)
WIDER = SCHEMA.replace("}}", '},"note":{"type":"string"}}', 1)


def topic_of(broker):
    broker.registry.refresh()
    return broker.registry.timelines(NAME).active.topic


def test_creation_records_the_event_type_and_its_first_timeline(broker):
    """Reference event-types#create-event-type."""
    head = broker.log.head().position
    broker.do(CREATE)
    assert broker.topics(head) == [
        "topic-creation.started",
        "topic-creation.ended",
        "event-type.created",
        "timeline.opened",
    ]
    broker.registry.refresh()
    timeline = broker.registry.timelines(NAME).active
    assert (timeline.order, timeline.storage_id, timeline.partitions) == (1, "default", 1)
    assert broker.store.bounds(timeline.topic) == [Bounds(0, -1)]


def test_the_expected_load_decides_the_number_of_partitions(broker):
    """Reference event-types#partition-count."""
    load = Statistic(messages_per_minute=1, message_size=1, read_parallelism=3, write_parallelism=1)
    broker.do(CreateEventType(spec=event_type_spec(default_statistic=load)))
    assert len(broker.store.bounds(topic_of(broker))) == 3


def test_a_second_creation_is_a_conflict_and_leaves_the_first_unchanged(broker):
    broker.do(CREATE)
    head, topic = broker.log.head(), topic_of(broker)
    with pytest.raises(Conflict, match=f"EventType {NAME} already exists"):
        broker.do(CREATE)
    assert broker.log.head() == head
    broker.store.append(topic, {0: [b"{}"]})


def test_the_same_command_run_again_after_its_answer_was_lost_is_a_conflict_too(broker):
    broker.bus.dispatch(CREATE, context())
    with pytest.raises(Conflict):
        broker.bus.dispatch(CREATE, context())
    broker.store.append(topic_of(broker), {0: [b"{}"]})


def test_changes_of_definition_and_schema_are_two_events(broker):
    broker.do(CREATE)
    head = broker.log.head().position
    spec = event_type_spec(owning_application="other", schema=SubmittedSchema(type="json_schema", schema=WIDER))
    changed = broker.do(ChangeEventType(name=NAME, spec=spec))
    assert broker.topics(head) == ["event-type.changed", "event-type.schema-added"]
    assert (changed.owning_application, changed.schema.version) == ("other", "1.1.0")


def test_putting_the_unchanged_resource_is_no_event(broker):
    created = broker.do(CREATE)
    head = broker.log.head()
    assert broker.do(ChangeEventType(name=NAME, spec=as_spec(created))) == created
    assert broker.log.head() == head


def test_a_rejected_change_is_no_event(broker):
    broker.do(CREATE)
    head = broker.log.head()
    with pytest.raises(Invalid):
        broker.do(ChangeEventType(name=NAME, spec=event_type_spec(category="data")))
    assert broker.log.head() == head


def test_deletion_removes_timelines_and_topic(broker):
    """Reference event-types#delete-event-type."""
    broker.do(CREATE)
    topic, head = topic_of(broker), broker.log.head().position
    broker.do(DeleteEventType(name=NAME))
    assert broker.topics(head) == ["timeline.deleted", "event-type.deleted", "topic.abandoned"]
    with pytest.raises(NotFound):
        broker.store.bounds(topic)
    broker.registry.refresh()
    with pytest.raises(EventTypeNotFound):
        broker.registry.event_type(NAME)


def test_a_deleted_name_can_be_used_again(broker):
    broker.do(CREATE)
    broker.do(DeleteEventType(name=NAME))
    assert broker.do(CREATE).name == NAME


def test_only_administrators_change_and_delete(broker):
    """Reference authorization#registry-rights."""
    broker.do(CreateEventType(spec=event_type_spec(authorization=ALICES)), BOB)
    spec = event_type_spec(authorization=ALICES, owning_application="other")
    for command in (ChangeEventType(name=NAME, spec=spec), DeleteEventType(name=NAME)):
        with pytest.raises(AccessDenied, match=f"Access on ADMIN event-type:{NAME} denied"):
            broker.do(command, BOB)
    broker.do(ChangeEventType(name=NAME, spec=spec), ALICE)
    broker.do(DeleteEventType(name=NAME), ADMIN)


def test_without_an_authorization_section_everyone_is_allowed(broker):
    """Reference authorization#no-section."""
    broker.do(CREATE, ALICE)
    broker.do(ChangeEventType(name=NAME, spec=event_type_spec(owning_application="other")), BOB)
    broker.registry.refresh()
    assert broker.registry.event_type(NAME).owning_application == "other"
    broker.do(DeleteEventType(name=NAME), BOB)
    broker.registry.refresh()
    assert broker.registry.event_types() == []


def test_features_disable_creation_and_deletion(broker):
    broker.do(CREATE)
    for feature, command, error in (
        ("disable_event_type_creation", CreateEventType(spec=event_type_spec(name="other")), FeatureDisabled),
        ("disable_event_type_deletion", DeleteEventType(name=NAME), AdminOnly),
        ("force_event_type_authz", CreateEventType(spec=event_type_spec(name="other")), Invalid),
        ("force_event_type_authz", DeleteEventType(name=NAME), AccessDenied),
        ("disable_db_write_operations", DeleteEventType(name=NAME), ReadOnly),
    ):
        broker.do(SwitchFeature(feature=feature, enabled=True))
        with pytest.raises(error):
            broker.do(command, BOB)
        broker.do(SwitchFeature(feature=feature, enabled=False))


def test_an_event_type_with_subscriptions_is_not_deleted(broker):
    broker.do(CREATE)
    broker.do(CreateSubscription(spec=subscription_spec()))
    with pytest.raises(Conflict, match="as it has subscriptions"):
        broker.do(DeleteEventType(name=NAME))


@pytest.mark.parametrize("way", ["the feature", "the archiver's"])
def test_deletable_subscriptions_are_deleted_in_the_same_command(broker, way):
    """Reference event-types#deletable-subscriptions."""
    broker.do(CREATE)
    archiver = {"owning_application": "nakadi_archiver", "consumer_group": "nakadi_to_s3"}
    broker.do(CreateSubscription(spec=subscription_spec(**({} if way == "the feature" else archiver))))
    if way == "the feature":
        broker.do(SwitchFeature(feature="delete_event_type_with_subscriptions", enabled=True))
    head = broker.log.head().position
    broker.do(DeleteEventType(name=NAME))
    entries = broker.log.entries(head, 100)
    assert [entry.event.TOPIC for entry in entries] == [
        "subscription.deleted",
        "subscription-key.released",
        "timeline.deleted",
        "event-type.deleted",
        "topic.abandoned",
    ]
    assert len({entry.origin.command_id for entry in entries}) == 1


def test_administrators_of_an_event_type_may_relax_its_compatibility_mode(broker):
    """Reference authorization#administrator-exemptions."""
    broker.do(CreateEventType(spec=event_type_spec(authorization=ALICES)))
    relaxed = ChangeEventType(name=NAME, spec=event_type_spec(authorization=ALICES, compatibility_mode="none"))
    assert broker.do(relaxed, ALICE).compatibility_mode == "none"


def test_without_administrators_of_an_event_type_only_those_of_the_broker_relax_its_compatibility_mode(broker):
    broker.do(CREATE)
    relaxed = ChangeEventType(name=NAME, spec=event_type_spec(compatibility_mode="none"))
    with pytest.raises(Invalid, match="changing compatibility_mode is not allowed"):
        broker.do(relaxed, ALICE)
    assert broker.do(relaxed, ADMIN).compatibility_mode == "none"
