"""`rioni audit log`, `show` and `diff`: the past, read while a broker runs, without changing anything."""

import json

import pytest

from rioni.commands.event_types import AddSchema, CreateEventType, DeleteEventType
from rioni.commands.system.storages import AddBlacklistEntry, RemoveBlacklistEntry, SwitchFeature
from rioni.domain.event_types.event_type import SubmittedSchema
from tests.support.broker import running_broker
from tests.support.builders import SCHEMA, event_type_spec


NAME = "order.created"
WIDER = SCHEMA.replace("}}", '},"note":{"type":"string"}}', 1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A data directory, and the entries of its log."""
    path = tmp_path_factory.mktemp("history") / "data"
    with running_broker(path) as broker:
        broker.do(CreateEventType(spec=event_type_spec(name=NAME)))
        broker.do(AddSchema(name=NAME, schema=SubmittedSchema(type="json_schema", schema=WIDER)))
        broker.do(AddBlacklistEntry(type="CONSUMER_APP", name="x"))
        broker.do(SwitchFeature(feature="kpi_collection", enabled=True))
        broker.do(RemoveBlacklistEntry(type="CONSUMER_APP", name="x"))
        broker.do(DeleteEventType(name=NAME))
        yield str(path)


@pytest.fixture
def entries(run, data):
    """The entries of the log, with both states."""
    return list(map(json.loads, run("audit", "--data", data, "--format", "jsonl")[1].splitlines()))


def position_of(entries, topic):
    return next(each["position"] for each in entries if each["topic"] == topic)


def test_the_log_of_a_resource_says_what_changed_each_time(run, data):
    code, out, _ = run("audit", "log", NAME, "--data", data)
    lines = out.splitlines()
    assert code == 0
    assert [line.split()[-1] for line in lines if not line.startswith(" ")] == [
        "event-type.created",
        "event-type.schema-added",
        "event-type.deleted",
    ]
    assert f'  + /name: "{NAME}"' in lines
    assert '  + /schema/schema > /properties/note: {"type":"string"}' in lines
    assert f'  - /name: "{NAME}"' in lines


def test_the_log_as_json_has_whole_states(run, data, entries):
    _, out, _ = run("audit", "log", f"event-type:{NAME}", "--json", "--data", data)
    found = [json.loads(line) for line in out.splitlines()]
    expected = [each for each in entries if (each["resource_type"], each["resource"]) == ("event-type", NAME)]
    assert [(each["position"], each["topic"]) for each in found] == [
        (each["position"], each["topic"]) for each in expected
    ]
    assert [(each["before"], each["after"]) for each in found] == [(each["before"], each["after"]) for each in expected]


def test_a_resource_is_shown_as_it_was_after_each_entry(run, data, entries):
    for each in entries:
        resource = f"{each['resource_type']}:{each['resource']}"
        code, out, err = run("audit", "show", resource, "--as-of", str(each["position"]), "--data", data)
        if each["after"] is None:
            assert (code, err) == (2, f"Error: There was no {resource} at position {each['position']} of the log.\n")
        else:
            assert json.loads(out) == each["after"]


def test_settings_are_shown_as_they_are_now(run, data):
    _, out, _ = run("audit", "show", "settings", "--data", data)
    assert json.loads(out)["features"] == ["kpi_collection", "repartitioning"]


def test_a_difference_leaves_out_what_was_undone(run, data, entries):
    start = position_of(entries, "event-type.schema-added")
    code, out, _ = run("audit", "diff", "--from", str(start), "--data", data)
    assert code == 0
    assert "settings:settings\n" in out
    assert "  + /features: " in out
    assert "  + /blacklist: []" in out
    assert f"event-type:{NAME}" in out
    blocked = position_of(entries, "settings.blacklist-entry-added")
    undone = position_of(entries, "settings.blacklist-entry-removed")
    _, out, _ = run("audit", "diff", "--from", str(blocked), "--to", str(undone), "--data", data)
    assert out.splitlines() == [
        "settings:settings",
        '  - /blacklist/0: ["CONSUMER_APP","x"]',
        '  + /features/0: "kpi_collection"',
    ]
    _, out, _ = run("audit", "diff", "--from", "0", "--to", str(start), "--resource", NAME, "--json", "--data", data)
    (line,) = map(json.loads, out.splitlines())
    assert line["resource"] == f"event-type:{NAME}"
    assert line["before"] is None
    assert line["changes"] == [{"op": "replace", "path": "", "value": line["after"]}]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("log", "no.such"), "Error: The log has no entry of event-type:no.such."),
        (("show", NAME, "--as-of", "9999"), "Error: The log ends at position 14; there is no position 9999."),
        (("show", NAME, "--as-of", "1999-01-01"), f"Error: There was no event-type:{NAME} at position 0 of the log."),
        (("diff", "--from", "3", "--to", "2"), "Error: Position 3 is before"),
        (("show", NAME, "--as-of", "yesterday"), "yesterday is not a time"),
    ],
)
def test_what_the_log_does_not_have_is_named(run, data, entries, arguments, error):
    code, _, err = run("audit", *arguments, "--data", data)
    assert code == 2
    expected = error.replace("position 14;", f"position {entries[-1]['position']};")
    assert expected.replace("Position 3 is", "Position 2 is") in err
