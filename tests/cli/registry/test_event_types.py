"""`rioni event-types`: show, create and delete."""

import io
import json
from pathlib import Path

import pytest

from rioni.client import EventType, NotFound, Schema, Subscription, metadata


@pytest.fixture
def orders(client, name):
    client.event_types.create(
        EventType(
            name=name,
            owning_application="shop",
            schema=Schema.json({"properties": {"order": {"type": "string"}, "no": {}}}),
            labels={"team": name},
        )
    )
    return name


def test_event_types_are_found_by_what_is_given(rioni, orders):
    for options in (["--name", f"{orders[:-2]}*"], ["--label", f"team:{orders}", "--owning-application", "shop"]):
        code, out, _ = rioni("event-types", "list", *options)
        assert code == 0
        heading, line = out.splitlines()
        assert heading.split()[:3] == ["name", "owner", "category"]
        assert line.split()[:7] == [orders, "shop", "business", "random", "delete", "2", "days"]
    assert rioni("event-types", "list", "--name", orders, "--category", "data")[1:] == ("", "None found.\n")


def test_an_event_type_is_shown_with_its_schema_in_several_lines(rioni, orders):
    code, out, _ = rioni("event-types", "show", orders)
    assert code == 0
    members, schema = out.split("\n\n", 1)
    assert f"labels              team={orders}" in [line.rstrip() for line in members.splitlines()]
    assert json.loads(schema) == {"properties": {"order": {"type": "string"}, "no": {}}}
    assert "admins              everybody" in out


def test_what_is_shown_as_yaml_can_be_applied_and_changes_nothing(rioni, orders):
    code, out, _ = rioni("event-types", "show", orders, "--yaml")
    assert code == 0
    assert out.startswith(f"kind: event-type\nname: {orders}\n")
    assert "      'no': {}\n" in out
    code, out, _ = rioni("event-types", "apply", "-", "--dry-run", stdin=out)
    assert (code, out) == (0, "1 unchanged.\n")


def test_an_event_type_is_created_from_options(rioni, client, name):
    Path("schema.yaml").write_text("properties: {order: {type: string}}")
    options = ["--owning-application", "shop", "--schema", "schema.yaml", "--partition-strategy", "hash"]
    options += ["--partition-key", "order", "--partitions", "3", "--retention-days", "1.5", "--label", "team=shop"]
    options += ["--admin", "user:jane", "--reader", "*:*", "--writer", "service:shop", "--writer", "service:pay"]
    assert rioni("event-types", "create", name, *options) == (0, f"The event type {name} is created.\n", "")
    found = client.event_types.get(name)
    assert found.options.retention_time == 129_600_000
    assert found.partition_key_fields == ["order"]
    assert [str(each) for each in found.authorization.writers] == ["service:shop", "service:pay"]
    assert found.schema.parsed() == {"properties": {"order": {"type": "string"}}}
    assert len(client.partitions.list(name)) == 3


def test_options_replace_members_of_the_definition(rioni, client, name):
    definition = (
        f"name: {name}\nowning_application: shop\naudience: external-public\nschema: {{schema: {{title: a}}}}\n"
    )
    Path("other.json").write_text('{"title": "b"}')
    options = ["--file", "-", "--owning-application", "pay", "--schema", "other.json"]
    assert rioni("event-types", "create", *options, stdin=definition)[0] == 0
    found = client.event_types.get(name)
    assert (found.owning_application, found.audience) == ("pay", "external-public")
    assert found.schema.parsed() == {"title": "b"}


def test_without_a_schema_any_object_is_valid(rioni, client, name):
    assert rioni("event-types", "create", name, "--owning-application", "shop")[0] == 0
    assert client.event_types.get(name).schema.parsed() == {"type": "object"}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--file", "short.yaml"], "there is no such event type, and for a new one this is missing: schema"),
        (["--schema", "absent.json"], "can't be read: No such file or directory"),
        (["--schema", "s.json", "--category", "bussiness"], "'bussiness' is not one of"),
        (["--schema", "s.json", "--admin", "user:x"], "authorization.readers is missing"),
        (["--schema", "s.json", "--admin", "jane"], "write data_type:value, such as service:shop"),
        (["--schema", "s.json", "--label", "team"], "write KEY=VALUE"),
        (["--schema", "s.json", "--partition-strategy", "hash"], "partition_key_fields field should be set"),
        (["--schema", "s.json", "--retention-days", "900"], "can not be more than 345600000"),
        (["--file", "two.yaml"], "two.yaml has 2 definitions instead of one."),
        (["--file", "subscription.yaml"], "subscription.yaml:1 is no definition of the kind event-type."),
        (["--file", "wrong.yaml"], "wrong.yaml:1: while parsing"),
    ],
)
def test_what_is_wrong_with_a_new_event_type_is_said(rioni, client, name, options, error):
    Path("s.json").write_text("{}")
    Path("short.yaml").write_text("category: business")
    Path("two.yaml").write_text("name: a\n---\nname: b")
    Path("subscription.yaml").write_text("kind: subscription\nevent_types: [a]\nowning_application: x")
    Path("wrong.yaml").write_text("a: [")
    code, out, err = rioni("event-types", "create", name, "--owning-application", "shop", *options)
    assert (code, out) == (2, "")
    assert error in " ".join(err.split())
    with pytest.raises(NotFound):
        client.event_types.get(name)


def test_an_event_type_that_exists_is_not_created(rioni, orders):
    Path("s.json").write_text("{}")
    code, _, err = rioni("event-types", "create", orders, "--owning-application", "shop", "--schema", "s.json")
    assert code == 2
    assert f"`rioni event-types edit {orders}` changes it." in err


class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True


@pytest.fixture
def typed(monkeypatch):
    """Lets a person type a line on a terminal."""

    def type_line(line):
        monkeypatch.setattr("sys.stdin", Terminal(io.BytesIO(f"{line}\n".encode())))

    return type_line


def test_who_deletes_is_told_who_uses_it_and_asked_for_the_name(rioni, client, orders, typed):
    client.publish(orders, [{"order": "1", "metadata": metadata()}])
    subscription = client.subscriptions.create(Subscription(owning_application="pay", event_types=[orders]))
    typed("another")
    code, out, err = rioni("event-types", "delete", orders)
    assert (code, out) == (2, "")
    assert f"rioni subscriptions delete {subscription.id}" in err
    assert f"unauthenticated published to {orders}" in err
    assert "That is not its name; nothing was changed." in err
    code, _, err = rioni("event-types", "delete", orders, "--yes")
    assert code == 2
    assert "as it has subscriptions" in err
    client.subscriptions.delete(subscription.id)
    typed(orders)
    assert rioni("event-types", "delete", orders)[:2] == (0, f"The event type {orders} is deleted.\n")
    assert rioni("event-types", "show", orders)[0] == 2


def test_without_a_terminal_deleting_needs_a_yes(rioni, client, orders):
    code, _, err = rioni("event-types", "delete", orders, stdin=f"{orders}\n")
    assert code == 2
    assert "use --yes" in err
    client.event_types.get(orders)


def test_who_reads_is_shown(rioni, client, orders):
    subscription = client.subscriptions.create(Subscription(owning_application="pay", event_types=[orders]))
    code, out, _ = rioni("event-types", "consumers", orders)
    assert code == 0
    assert out.splitlines()[1].split()[:3] == [subscription.id, "pay", "default"]
