"""The command that writes models of events."""

import pytest

from rioni.client import EventType, Schema


@pytest.fixture
def event_type(client, name):
    schema = Schema.json({"properties": {"number": {"type": "integer"}}})
    client.event_types.create(EventType(name=name, owning_application="shop", schema=schema))
    return name


def test_models_are_printed_or_written(rioni, event_type, tmp_path):
    code, out, _ = rioni("types", event_type)
    assert code == 0
    assert f'"""Events of {event_type}."""' in out
    assert "    number: int | None = None" in out
    assert rioni("types", event_type, "--output", "events.py", "--style", "dataclass")[:2] == (0, "Wrote events.py.\n")
    assert "@dataclass" in (tmp_path / "events.py").read_text()


def test_json(rioni, event_type, snapshot):
    assert rioni("types", event_type, "--json")[1].startswith('{"source":')
    snapshot("types-output", rioni("types", event_type, "--output", "events.py", "--json")[1])


def test_what_is_wrong_is_said(rioni, event_type):
    code, _, err = rioni("types", event_type, "--style", "pydantic")
    assert (code, "'pydantic' is not one of 'msgspec', 'dataclass'." in err) == (2, True)
    assert rioni("types", event_type, "--output", "no/folder.py")[0] == 2
    code, _, err = rioni("types", "cli-no-such-type")
    assert code == 2
    assert "does not exist" in err
