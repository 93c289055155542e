import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.cli.definitions.definition import Definition, SourceLocation, definition, document_of
from rioni.cli.definitions.steps import Action, Step, ordered, step
from rioni.cli.terminal.json_and_yaml import read, written
from rioni.domain.errors import Invalid
from rioni.wire.event_types import EventType
from rioni.wire.subscriptions import Subscription


PLACE = SourceLocation("f.yaml", 1)
TEXTS = st.sampled_from(["a", "no", "1.0", "x y"])
MAPS = st.dictionaries(TEXTS, TEXTS, max_size=2)
SCHEMAS = st.builds(
    lambda value, indent: {"type": "json_schema", "schema": json.dumps(value, indent=indent)},
    st.dictionaries(st.sampled_from(["title", "description", "default"]), TEXTS, max_size=2),
    st.sampled_from([None, 2]),
)
ATTRIBUTES = st.lists(st.builds(lambda value: {"data_type": "user", "value": value}, TEXTS), min_size=1, max_size=2)
PARALLELISM = st.integers(1, 4)
EVENT_TYPE_MEMBERS = {
    "category": st.sampled_from(["business", "data", "undefined"]),
    "partition_key_fields": st.lists(TEXTS, max_size=2),
    "options": st.sampled_from([{}, {"retention_time": 90_000_000}]),
    "labels": MAPS,
    "annotations": MAPS,
    "audience": st.just("external-public"),
    "default_statistic": st.fixed_dictionaries(
        {
            "messages_per_minute": st.integers(0, 2),
            "message_size": st.integers(1, 2),
            "read_parallelism": PARALLELISM,
            "write_parallelism": PARALLELISM,
        }
    ),
    "authorization": st.fixed_dictionaries(dict.fromkeys(("admins", "readers", "writers"), ATTRIBUTES)),
}
EVENT_TYPES = st.fixed_dictionaries(
    {"name": st.just("a"), "owning_application": TEXTS, "schema": SCHEMAS}, optional=EVENT_TYPE_MEMBERS
)
SOME_OF_EVENT_TYPE = st.fixed_dictionaries(
    {"name": st.just("a")}, optional={"owning_application": TEXTS, "schema": SCHEMAS, **EVENT_TYPE_MEMBERS}
)
SUBSCRIPTION_MEMBERS = {
    "labels": MAPS,
    "annotations": MAPS,
    "filter": st.sampled_from(["", "event.x == 1"]),
    "authorization": st.fixed_dictionaries(dict.fromkeys(("admins", "readers"), ATTRIBUTES)),
    "read_from": st.sampled_from(["begin", "end"]),
}
SUBSCRIPTIONS = st.fixed_dictionaries(
    {"owning_application": st.just("shop"), "event_types": st.sampled_from([["b", "a"], ["a", "b", "a"]])},
    optional=SUBSCRIPTION_MEMBERS,
)


def asked(members, kind="event-type"):
    return Definition(kind, members, PLACE)


def done(found: Step):
    """The resource that the broker has after a step."""
    if found.kind == "event-type":
        return EventType.of(found.after)
    return Subscription.of({**found.after, "filter": found.after.get("filter") or None})


@given(members=EVENT_TYPES)
def test_an_event_type_that_was_created_needs_nothing_more(members):
    found = step(asked(members), None)
    assert found.action is Action.CREATE
    assert step(asked(members), done(found)).action is Action.KEEP


@given(before=EVENT_TYPES, members=SOME_OF_EVENT_TYPE)
def test_an_event_type_that_was_changed_needs_nothing_more(before, members):
    current = done(step(asked(before), None))
    try:
        found = step(asked(members), current)
    except Invalid:
        return
    assert step(asked(members), done(found)).action is Action.KEEP
    assert found.action is (Action.CHANGE if done(found) != current else Action.KEEP)


@given(before=EVENT_TYPES, members=SOME_OF_EVENT_TYPE)
def test_members_that_a_definition_lacks_keep_their_values(before, members):
    current = done(step(asked(before), None))
    try:
        found = step(asked(members), current)
    except Invalid:
        return
    assert {name: value for name, value in found.after.items() if name not in members} == {
        name: value for name, value in current.members().items() if name not in members
    }


@given(members=EVENT_TYPES)
def test_what_a_broker_has_as_a_document_changes_nothing(members):
    current = done(step(asked(members), None))
    (document,) = read(written(document_of("event-type", current.members())))
    assert step(definition(document, "f.yaml"), current).action is Action.KEEP


@given(before=SUBSCRIPTIONS, members=SUBSCRIPTIONS)
def test_a_subscription_that_was_created_or_changed_needs_nothing_more(before, members):
    current = done(step(asked(before, "subscription"), None))
    assert step(asked(before, "subscription"), current).action is Action.KEEP
    found = step(asked(members, "subscription"), current)
    assert step(asked(members, "subscription"), done(found)).action is Action.KEEP
    (document,) = read(written(document_of("subscription", current.members())))
    assert step(definition(document, "f.yaml"), current).action is Action.KEEP


def event_type(**members):
    return EventType.of({"name": "a", "owning_application": "shop", "schema": {"schema": '{"a": 1}'}} | members)


def statistic(read=1, write=1, messages=5):
    return {
        "messages_per_minute": messages,
        "message_size": 1,
        "read_parallelism": read,
        "write_parallelism": write,
    }


def test_a_schema_of_the_same_json_keeps_its_text():
    members = {"name": "a", "schema": {"type": "json_schema", "schema": '{ "a" : 1 }'}}
    found = step(asked(members), event_type())
    assert found.action is Action.KEEP
    assert found.after["schema"]["schema"] == '{"a": 1}'
    assert not found.changes_schema


def test_differences_are_within_the_schema():
    members = {"name": "a", "schema": {"type": "json_schema", "schema": '{"a": 2, "b": true}'}}
    found = step(asked(members), event_type())
    assert found.changes_schema
    assert [each.as_json() for each in found.changes] == [
        {"path": "schema.schema.a", "before": 1, "after": 2},
        {"path": "schema.schema.b", "after": True},
    ]


def test_a_greater_parallelism_adds_partitions():
    found = step(asked({"name": "a", "default_statistic": statistic(2, 4)}), event_type(default_statistic=statistic(3)))
    assert found.partitions == 4
    assert found.after["default_statistic"] == statistic(4, 4)
    assert found.first_update["default_statistic"] == statistic(3, 1)


def test_a_statistic_for_an_event_type_without_one_sets_its_partitions():
    found = step(asked({"name": "a", "default_statistic": statistic(2, 1)}), event_type())
    assert found.partitions == 2
    assert "default_statistic" not in found.first_update
    assert found.after["default_statistic"] == statistic(2, 2)


def test_partitions_are_never_removed():
    with pytest.raises(Invalid, match="asks for 2 partitions instead of 3; none can be removed"):
        step(asked({"name": "a", "default_statistic": statistic(2)}), event_type(default_statistic=statistic(1, 3)))


def test_other_members_of_the_statistic_may_change_alone():
    found = step(
        asked({"name": "a", "default_statistic": statistic(3, 3, messages=9)}),
        event_type(default_statistic=statistic(1, 3)),
    )
    assert found.partitions is None
    assert found.after["default_statistic"] == statistic(1, 3, messages=9)


def test_a_new_event_type_needs_an_application_and_a_schema():
    with pytest.raises(Invalid, match="this is missing: owning_application, schema"):
        step(asked({"name": "a"}), None)


def test_a_new_event_type_of_the_category_undefined_has_no_enrichment():
    members = {"name": "a", "owning_application": "x", "schema": {"schema": "{}"}}
    assert step(asked(members), None).after["enrichment_strategies"] == ["metadata_enrichment"]
    assert step(asked({**members, "category": "undefined"}), None).after["enrichment_strategies"] == []


def test_where_a_subscription_begins_matters_for_a_new_one_only():
    current = Subscription(id="1", owning_application="shop", event_types=["a"], read_from="begin")
    members = {"owning_application": "shop", "event_types": ["a"], "read_from": "end", "initial_cursors": []}
    found = step(asked(members, "subscription"), current)
    assert found.action is Action.KEEP
    assert found.notes == ("read_from stays begin: it counts at creation; `rioni subscriptions reset` moves cursors",)


def test_steps_are_ordered_so_that_each_can_be_done():
    current, members = event_type(), {"owning_application": "shop", "event_types": ["a"]}
    subscription = Subscription.of(members)
    steps = [
        Step("event-type", current, None),
        Step("subscription", None, members),
        Step("subscription", subscription, None),
        Step("event-type", None, current.members()),
        Step("event-type", current, {**current.members(), "labels": {"a": "b"}}),
    ]
    assert [(each.kind, each.action) for each in ordered(steps)] == [
        ("event-type", "create"),
        ("event-type", "change"),
        ("subscription", "create"),
        ("subscription", "delete"),
        ("event-type", "delete"),
    ]


def test_a_step_for_programs_says_what_changes_where():
    found = step(asked({"name": "a", "labels": {"team": "shop"}}), event_type())
    assert found.as_json() == {
        "action": "change",
        "kind": "event-type",
        "name": "a",
        "id": None,
        "file": "f.yaml",
        "line": 1,
        "changes": [{"path": "labels.team", "after": "shop"}],
        "notes": [],
    }
