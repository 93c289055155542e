import pytest

from rioni.cli.definitions.broker_rules import check_step, next_version
from rioni.cli.definitions.definition import Definition, SourceLocation
from rioni.cli.definitions.steps import Step, step
from rioni.domain.errors import Invalid
from rioni.wire.event_types import EventType, Schema
from rioni.wire.subscriptions import Subscription


SCHEMA = '{"properties": {"order": {"type": "string"}}}'
ORDERS = EventType(
    name="orders",
    owning_application="shop",
    schema=Schema(schema=SCHEMA, version="1.2.0"),
    partition_strategy="hash",
    partition_key_fields=["order"],
)


def asked(current=None, kind="event-type", **members):
    return step(Definition(kind, members, SourceLocation("f.yaml", 1)), current)


def schema(text):
    return {"type": "json_schema", "schema": text}


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"name": "1"}, 'Field "name" format not allowed'),
        ({"partition_strategy": "hash"}, "partition_key_fields field should be set"),
        ({"partition_strategy": "hash", "partition_key_fields": ["x"]}, "absent in schema"),
        ({"schema": schema("{")}, "schema must be a valid json"),
        ({"schema": schema('{"type": "string"}')}, "can only be"),
        ({"category": "undefined", "cleanup_policy": "compact"}, "is not available"),
        ({"labels": {"": "x"}}, "Key cannot be empty"),
        ({"annotations": {"datalake.zalando.org/materialize-events": "maybe"}}, "datalake"),
    ],
)
def test_what_the_broker_would_refuse_to_create_is_refused(members, error):
    with pytest.raises(Invalid, match=error):
        check_step(asked(**{"name": "a", "owning_application": "x", "schema": schema("{}")} | members))


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"category": "data"}, "Category change is allowed only from"),
        ({"cleanup_policy": "compact"}, "Invalid cleanup_policy change"),
        ({"enrichment_strategies": []}, "changing enrichment_strategies is not allowed"),
        ({"partition_key_fields": ["gone"]}, "absent in schema"),
        ({"schema": schema('{"properties": {"order": {"$ref": "http://x"}}}')}, "external url reference"),
    ],
)
def test_what_the_broker_would_refuse_to_change_is_refused(members, error):
    with pytest.raises(Invalid, match=error):
        check_step(asked(ORDERS, name="orders", **members))


def test_what_depends_on_settings_or_rights_is_left_to_the_broker():
    check_step(asked(name="a", owning_application="x", schema=schema("{}"), options={"retention_time": 1}))
    check_step(asked(ORDERS, name="orders", partition_strategy="random", compatibility_mode="none"))


def test_more_partitions_are_no_change_of_the_statistic():
    statistic = {"messages_per_minute": 1, "message_size": 1, "read_parallelism": 2, "write_parallelism": 2}
    check_step(asked(ORDERS, name="orders", default_statistic=statistic))
    check_step(asked(EventType.of(ORDERS.members() | {"default_statistic": statistic}), name="orders",
                default_statistic=statistic | {"read_parallelism": 5}))  # fmt: skip


def test_the_next_version_is_known_where_the_schema_is_compatible():
    wider = '{"properties": {"order": {"type": "string"}, "note": {}}}'
    assert next_version(asked(ORDERS, name="orders", schema=schema(wider))) == "1.3.0"
    assert next_version(asked(ORDERS, name="orders", schema=schema('{"properties": {}}'))) is None
    assert next_version(asked(ORDERS, name="orders", labels={"a": "b"})) is None


@pytest.mark.parametrize(
    "text",
    ["", "\0", "no JSON", "null", "[]", '{"a": 1, "a": 2}', '{"$ref": "#/x"}', '{"type": 7}', '{"pattern": "("}'],
)
def test_the_next_version_is_unknown_where_another_server_has_taken_any_schema(text):
    current = EventType.of(ORDERS.members() | {"schema": schema(text) | {"version": "1.2.3"}})
    assert next_version(asked(current, name="orders", schema=schema("{}"))) is None


@pytest.mark.parametrize(
    "version", ["", "1", "latest", "1.2.x", "1.2.3.4", "9" * 5_000 + ".0.0", "-1.0.0", "\u0661.0.0"]
)
def test_the_next_version_is_unknown_where_another_server_has_versions_of_its_own(version):
    current = EventType.of(ORDERS.members() | {"schema": schema("{}") | {"version": version}})
    assert next_version(asked(current, name="orders", schema=schema('{"title": "x"}'))) is None


def test_subscriptions_are_checked_alike():
    members = {"kind": "subscription", "owning_application": "shop", "event_types": ["orders"]}
    check_step(asked(**members))
    check_step(Step("subscription", Subscription(id="1", owning_application="shop", event_types=["a"]), None))
    twice = [{"data_type": "user", "value": "x"}] * 2
    for wrong, error in (
        ({"filter": "event.("}, "The filter can't be used"),
        ({"authorization": {"admins": twice, "readers": twice}}, "duplicated attribute"),
        ({"annotations": {"nakadi.zalando.org/subscription-max-event-send-count": "3"}}, "needs"),
        ({"read_from": "begin", "initial_cursors": [{"offset": "END"}]}, "must name a partition"),
    ):
        with pytest.raises(Invalid, match=error):
            check_step(asked(**members, **wrong))
