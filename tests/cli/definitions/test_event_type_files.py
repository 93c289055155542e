"""`rioni event-types`: apply, check and diff."""

import json
from pathlib import Path

import pytest

from rioni.cli.definitions.definition import Definition, SourceLocation
from rioni.cli.definitions.planning import ChangedMeanwhile, carry_out, plan
from rioni.client import EventType, NotFound, Schema, Subscription


@pytest.fixture
def files(name):
    """Writes definitions, in which NAME stands for a name of this test."""

    def write(**texts):
        for file, text in texts.items():
            Path("d").mkdir(exist_ok=True)
            Path(f"d/{file}.yaml").write_text(text.replace("NAME", name))

    return write


ORDERS = """
name: NAME.order
owning_application: NAME
schema: {schema: {properties: {order: {type: string}, country: {enum: [de, no]}}}}
labels: {team: shop}
---
kind: subscription
owning_application: NAME
event_types: [NAME.order, NAME.paid]
"""
PAID = "name: NAME.paid\nowning_application: NAME\nschema: {schema: {title: paid}}\n"


def lines(out):
    return [json.loads(line) for line in out.splitlines()]


def test_what_was_applied_is_there_and_applying_it_again_changes_nothing(rioni, client, name, files):
    files(a_orders=ORDERS, b_paid=PAID)
    code, out, _ = rioni("event-types", "apply", "d", "--dry-run")
    assert code == 1
    assert out.splitlines()[0] == f"+ event-type {name}.order  (d/a_orders.yaml:2)"
    assert out.splitlines()[-1] == "3 to create, 0 unchanged."
    with pytest.raises(NotFound):
        client.event_types.get(f"{name}.order")
    code, out, err = rioni("event-types", "apply", "d", "--yes")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == f"subscription {name}/default of {name}.order, {name}.paid: created"
    assert client.event_types.get(f"{name}.order").schema.parsed()["properties"]["country"] == {"enum": ["de", "no"]}
    assert rioni("event-types", "apply", "d", "--yes") == (0, "3 unchanged.\n", "")
    before = client.event_types.get(f"{name}.order")
    code, out, _ = rioni("event-types", "apply", "d", "--json")
    assert code == 0
    assert {each["status"] for each in lines(out)} == {"unchanged"}
    assert client.event_types.get(f"{name}.order") == before


def test_changes_are_shown_within_the_schema_and_partitions_are_added(rioni, client, name, files):
    files(orders=ORDERS, paid=PAID)
    assert rioni("event-types", "apply", "d", "--yes")[0] == 0
    statistic = "{messages_per_minute: 5, message_size: 10, read_parallelism: 3, write_parallelism: 1}"
    files(
        orders=ORDERS.replace("order: {type: string}", "order: {type: string}, note: {type: string}")
        .replace("{team: shop}", f"{{}}\noptions: {{retention_time: 90000000}}\ndefault_statistic: {statistic}")
        .replace("\nevent_types", "\nlabels: {a: b}\nread_from: begin\nevent_types"),
    )
    code, out, _ = rioni("event-types", "apply", "d", "--yes")
    assert code == 0
    assert out.splitlines()[:-2] == [
        f"~ event-type {name}.order  (d/orders.yaml:2)",
        '  + schema.schema.properties.note: {"type": "string"}',
        "  ~ options.retention_time: 172800000 ms (2 days) -> 90000000 ms (1.04 days)",
        '  - labels.team: "shop"',
        f"  + default_statistic: {json.dumps(STATISTIC)}",
        "    partitions are added: 3; keys may move to other ones, and it can't be undone",
        "    its schema will have the version 1.1.0",
        f"~ subscription {name}/default of {name}.order, {name}.paid  (d/orders.yaml:9)",
        '  + labels.a: "b"',
        "    read_from stays end: it counts at creation; `rioni subscriptions reset` moves cursors",
        "2 to change, 1 unchanged.",
    ]
    found = client.event_types.get(f"{name}.order")
    assert (found.schema.version, found.labels, found.default_statistic.messages_per_minute) == ("1.1.0", {}, 5)
    assert len(client.partitions.list(f"{name}.order")) == 3
    assert rioni("event-types", "apply", "d", "--dry-run")[0] == 0


STATISTIC = {"messages_per_minute": 5, "message_size": 10, "read_parallelism": 3, "write_parallelism": 3}


def test_all_problems_are_reported_together_and_nothing_is_changed(rioni, client, name, files):
    files(paid=PAID)
    assert rioni("event-types", "apply", "d", "--yes")[0] == 0
    files(
        paid=PAID.replace("title: paid", "properties: {paid: {type: string}}"),
        syntax="name: [",
        unknown="name: NAME.x\npartition_strategi: hash",
        new="name: NAME.new\nschema: {schema: {}}\n---\n" + ORDERS.replace("NAME.order, ", "NAME.absent, "),
        rule="name: NAME.rule\nowning_application: a\npartition_strategy: hash\nschema: {schema: {}}\n",
        mode=PAID.replace("NAME.paid", "NAME.good"),
    )
    assert rioni("event-types", "apply", "d/paid.yaml", "--yes")[0] == 0
    files(paid=PAID.replace("title: paid", "properties: {paid: {type: integer}}"))
    code, out, err = rioni("event-types", "apply", "d", "--yes")
    assert (code, out) == (2, "")
    assert [line.split(". What to do: ")[0] for line in err.replace(name, "NAME").splitlines()] == [
        "d/syntax.yaml:1: while parsing a flow node did not find expected node content",
        "d/unknown.yaml:2: NAME.x: unknown member partition_strategi; did you mean partition_strategy?",
        "d/new.yaml:1: NAME.new: there is no such event type, and for a new one this is missing: owning_application",
        (
            "d/new.yaml:10: NAME/default of NAME.absent, NAME.paid: there is no event type NAME.absent, "
            "neither on the broker nor in the files"
        ),
        (
            "d/paid.yaml:1: NAME.paid: Invalid schema: #/properties/paid: schema types must be the same; "
            'for example this event was valid and would be refused: {"paid":"text"}'
        ),
        "d/rule.yaml:1: NAME.rule: partition_key_fields field should be set for partition strategy 'hash'",
        "Error: 6 problems; nothing was changed.",
    ]
    for absent in ("new", "good", "order"):
        with pytest.raises(NotFound):
            client.event_types.get(f"{name}.{absent}")
    code, out, err = rioni("event-types", "check", "d", "--json")
    assert code == 1
    assert [(each["file"], each["line"]) for each in lines(out)] == [
        ("d/new.yaml", 1),
        ("d/new.yaml", 10),
        ("d/paid.yaml", 1),
        ("d/rule.yaml", 1),
        ("d/syntax.yaml", 1),
        ("d/unknown.yaml", 2),
    ]
    code, out, err = rioni("event-types", "check", "d/mode.yaml")
    assert (code, out) == (0, "Nothing is wrong with 1 definition.\n")
    assert err.startswith("Compared with the broker at http://")


def test_what_was_interrupted_can_be_repeated(rioni, client, name, files):
    # The result depends on settings of the broker: only an attempt shows it.
    refused = PAID.replace("labels", "").replace("NAME.paid", "NAME.refused") + "options: {retention_time: 1}\n"
    files(a=PAID, b=refused, c=PAID.replace("NAME.paid", "NAME.third"))
    code, out, err = rioni("event-types", "apply", "d", "--yes")
    assert code == 2
    assert out.splitlines()[-1] == f"event-type {name}.paid: created"
    assert "can not be less than 10800000" in err
    assert "1 of 3 changes were made; the same command plans the others." in err
    files(b=refused.replace("retention_time: 1", "retention_time: 90000000"))
    code, out, _ = rioni("event-types", "apply", "d", "--yes")
    assert code == 0
    assert "2 to create, 1 unchanged." in out
    assert rioni("event-types", "apply", "d", "--dry-run")[0] == 0


def definition(kind="event-type", **members):
    return Definition(kind, members, SourceLocation("f.yaml", 1))


def test_what_was_changed_since_the_plan_was_made_is_not_changed(client, name):
    created = client.event_types.create(EventType(name=name, owning_application="shop", schema=Schema.json({})))
    subscription = client.subscriptions.create(Subscription(owning_application="shop", event_types=[name]))
    members = {"owning_application": "shop", "event_types": [name], "labels": {"a": "b"}}
    made = plan(client, [definition(name=name, labels={"a": "b"}), definition("subscription", **members)])
    schema = {"type": "json_schema", "schema": "{}"}
    new = plan(client, [definition(name=f"{name}.new", owning_application="x", schema=schema)])
    assert not made.problems
    assert not new.problems
    client.event_types.update(EventType.of({**created.members(), "labels": {"c": "d"}}))
    client.subscriptions.update(
        Subscription.of({**subscription.members(), "labels": {"c": "d"}, "id": subscription.id})
    )
    client.event_types.create(EventType(name=f"{name}.new", owning_application="y", schema=Schema.json({})))
    for step, reason in zip(
        [*made.changes, *new.changes], ["was changed since", "was changed since", "already exists"], strict=True
    ):
        with pytest.raises(ChangedMeanwhile, match=reason):
            list(carry_out(client, [step]))
    assert client.event_types.get(name).labels == {"c": "d"}
    assert client.subscriptions.get(subscription.id).labels == {"c": "d"}


def test_what_no_file_names_is_deleted_on_request(rioni, client, name, files):
    files(orders=ORDERS, paid=PAID)
    assert rioni("event-types", "apply", "d", "--yes")[0] == 0
    files(orders=ORDERS.partition("---")[0])
    Path("d/paid.yaml").unlink()
    code, _, err = rioni("event-types", "apply", "d", "--prune", "--yes")
    assert code == 2
    assert "--owning-application" in err
    prune = ["event-types", "apply", "d", "--prune", "--owning-application", name, "--yes"]
    code, _, err = rioni(*prune)
    assert code == 2
    assert f"--prune: {name}.paid: can't be deleted, as it has subscriptions: " in err
    code, out, _ = rioni(*prune, "--prune-subscriptions")
    assert code == 0
    assert out.splitlines()[-3:] == [
        "2 to delete, 1 unchanged.",
        f"subscription {name}/default of {name}.order, {name}.paid: deleted",
        f"event-type {name}.paid: deleted",
    ]
    assert [each.name for each in client.event_types.list(owning_application=name)] == [f"{name}.order"]


def test_without_files_nothing_is_pruned(rioni):
    Path("empty").mkdir()
    for paths, error in (([], "Name the files"), (["empty"], "There are no definitions in empty.")):
        code, _, err = rioni("event-types", "apply", *paths, "--prune", "--owning-application", "x", "--yes")
        assert code == 2
        assert error in err


def test_without_a_terminal_applying_needs_a_yes(rioni, client, name, files):
    files(paid=PAID)
    code, out, err = rioni("event-types", "apply", "d", stdin="y\n")
    assert code == 2
    assert "1 to create" in out
    assert "use --yes" in err
    with pytest.raises(NotFound):
        client.event_types.get(f"{name}.paid")


def test_the_json_schema_is_printed_for_editors(rioni):
    code, out, _ = rioni("event-types", "apply", "--schema")
    assert code == 0
    assert json.loads(out)["title"] == "Event types and subscriptions of a broker"


def test_differences_of_files_and_event_types_are_shown(rioni, client, name, files, broker):
    files(orders=ORDERS.partition("---")[0], paid=PAID)
    assert rioni("event-types", "apply", "d", "--yes")[0] == 0
    created = client.event_types.get(f"{name}.order")
    files(orders=ORDERS.partition("---")[0].replace("team: shop", "team: pay"))
    code, out, _ = rioni("event-types", "diff", "d", "--json")
    assert code == 1
    assert [each["changes"] for each in lines(out)] == [[{"path": "labels.team", "before": "shop", "after": "pay"}], []]
    assert rioni("event-types", "apply", "d", "--yes")[0] == 0
    assert rioni("event-types", "diff", "d") == (0, "2 unchanged.\n", "")
    before = ["event-types", "diff", f"{name}.order", "--as-of", str(created.updated_at.isoformat())]
    assert rioni(*before) == (1, '~ labels.team: "shop" -> "pay"\n', "")
    code, out, _ = rioni("event-types", "diff", f"{name}.paid", "--against", f"{name}.order")
    assert code == 1
    assert out.splitlines()[-1] == '- labels.team: "pay"'
    client.schemas.add(f"{name}.paid", Schema.json({"title": "paid", "description": "x"}))
    versions = ["event-types", "diff", f"{name}.paid@1.0.1", "--against", "@1.0.0"]
    assert rioni(*versions) == (1, '+ schema.schema.description: "x"\n', "")
    assert rioni("context", "add", "same", "--url", broker.url)[0] == 0
    assert rioni("event-types", "diff", f"{name}.paid", "--against-context", "same") == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["absent"], "There is neither a file nor an event type absent."),
        (["f.yml"], "There is neither a file nor an event type f.yml; did you mean f.yaml?"),
        (["f.yaml", "--against", "x"], "f.yaml is a file, which is compared with the broker"),
        (["orders@1.0.0", "--as-of", "2026-01-31"], "A version of a schema never changes"),
        (["f.yaml"], "There are no definitions in f.yaml."),
    ],
)
def test_what_cannot_be_compared_is_an_error(rioni, arguments, error):
    Path("f.yaml").write_text("")
    code, out, err = rioni("event-types", "diff", *arguments)
    assert (code, out) == (2, "")
    assert error in err


FILTERED = """
name: NAME.order
owning_application: NAME
schema: {schema: {properties: {total: {type: integer}}, additionalProperties: false}}
---
kind: subscription
owning_application: NAME
event_types: [NAME.order]
filter: FILTER
"""
OFFLINE = {
    "a schema that is none": (PAID.replace("title: paid", "type: 3"), 'root element in schema can only be "object"'),
    "a rule": (PAID + "partition_strategy: hash\n", "partition_key_fields"),
    "a member": (PAID + "colour: red\n", "unknown member colour"),
    "YAML": ("name: [", "parsing a flow"),
    "a filter that is none": (FILTERED.replace("FILTER", '"event. >"'), "The filter can't be used"),
    "a filter that the schema excludes": (FILTERED.replace("FILTER", "event.totl > 1"), "did you mean total?"),
    "an event type": (ORDERS.replace("NAME.order, ", "NAME.absent, "), "there is no event type NAME.absent"),
    "a change": (PAID.replace("title: paid", "properties: {paid: {type: integer}}"), "schema types must be the same"),
}
BEFORE = PAID.replace("title: paid", "properties: {paid: {type: string}}")


@pytest.mark.parametrize("case", OFFLINE)
def test_definitions_are_checked_without_a_broker(run, name, files, monkeypatch, case):
    monkeypatch.delenv("RIONI_URL", raising=False)
    text, said = OFFLINE[case]
    files(before=BEFORE)
    Path("d").rename("before")
    files(a=text)
    code, out, err = run("event-types", "check", "d", "--against", "before", "--json")
    assert (code, err) == (1, "Checked without a broker, compared with before.\n")
    (problem,) = lines(out)
    assert said.replace("NAME", name) in problem["problem"]
    assert problem["file"] == "d/a.yaml"
    # New event types may have any valid values.
    assert run("event-types", "check", "d")[0] == (0 if case == "a change" else 1)


def test_what_a_broker_would_take_is_right_without_one(run, name, files, monkeypatch):
    monkeypatch.delenv("RIONI_URL", raising=False)
    files(a=FILTERED.replace("FILTER", "event.total > 1"), before=BEFORE)
    assert run("event-types", "check", "d") == (
        0,
        "Nothing is wrong with 3 definitions.\n",
        "Checked without a broker, as new ones.\n",
    )
    assert run("event-types", "check", "d", "--against", "d")[:2] == (0, "Nothing is wrong with 3 definitions.\n")
    for wrong in (["--against", "absent"], ["--against", "d", "--url", "http://localhost:1"]):
        code, out, err = run("event-types", "check", "d", *wrong)
        assert (code, out) == (2, "")
        assert err.startswith("Error: ")


def test_without_a_broker_the_verdict_is_that_of_the_broker(rioni, name, files, monkeypatch):
    """Without a broker, the check refuses the new definitions that the broker refuses, in the same words."""
    for case, (text, _) in OFFLINE.items():
        if case in {"an event type", "a change", "a filter that the schema excludes"}:
            continue
        files(a=text)
        asked = rioni("event-types", "check", "d", "--json")
        with monkeypatch.context() as without:
            without.delenv("RIONI_URL")
            assert rioni("event-types", "check", "d", "--json")[:2] == asked[:2], case


def test_changes_of_schemas_warn_of_filters_that_read_what_they_exclude(rioni, client, name, files):
    definition = """
name: NAME.order
owning_application: NAME
compatibility_mode: none
schema: {schema: {properties: {order: {type: string}, country: {type: string}}}}
---
kind: subscription
owning_application: NAME
event_types: [NAME.order]
filter: "event.country == 'no'"
"""
    files(orders=definition)
    assert rioni("event-types", "apply", "d", "--yes")[0] == 0
    closed = "{properties: {order: {type: string}}, additionalProperties: false}"
    files(orders=definition.replace("{properties: {order: {type: string}, country: {type: string}}}", closed))
    why = f"the filter of {name}/default matches nothing then: event.country: the schema of {name}.order excludes it"
    assert f"warning: {why}" in rioni("event-types", "apply", "d", "--dry-run")[1]
    schema = json.dumps({"properties": {"order": {"type": "string"}}, "additionalProperties": False})
    code, _, err = rioni("schemas", "add", f"{name}.order", "-", stdin=schema)
    assert (code, f"Warning: {why}" in err) == (0, True)
