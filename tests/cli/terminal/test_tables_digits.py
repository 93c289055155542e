"""Numbers of events that no float has: whatever command shows them, none is rounded, and none becomes a text."""

import json
import shlex

import pytest

from rioni.client import EventType, Schema, Subscription
from tests.support.dead_letters import KEEPING, dead_letter


LONG, SMALL = "0.1234567890123456789", "1E-400"
EVENT = f'{{"v":{LONG},"w":{SMALL},"x":[1.1,{LONG},-0.0]}}'
SPACED = EVENT.replace(",", ", ").replace(":", ": ")
SHOWN = {
    "": [EVENT],
    "--template '{v} {w} {x} {x.1}'": [f"{LONG} {SMALL} [1.1, {LONG}, -0.0] {LONG}"],
    "--template '{v:.3f}'": ["0.123"],
    "--columns v,w,x,x.1,event": [LONG, SMALL, f"1.1, {LONG}, -0.0", SPACED],
    "--json": [f'"event":{EVENT}'],
}
COMMANDS = (
    *(("tail {name} --no-follow --no-metadata", *each) for each in SHOWN.items()),
    *(("search {name} --no-metadata", *each) for each in SHOWN.items()),
    *(("subscriptions consume {id} --limit 1 --no-metadata", *each) for each in SHOWN.items()),
    ("dead-letters list {id}", "", [SPACED]),
    ("dead-letters list {id}", "--json", [f'"event":{EVENT}']),
    ("subscriptions try-filter 'event.v > 0.1'", "", [EVENT]),
    ("subscriptions try-filter 'event.v > 0.1'", "--json", [f'"event":{EVENT}']),
)


@pytest.fixture
def names(client, name):
    """An event type with such an event, and a subscription with a dead letter of it."""
    client.event_types.create(EventType(name=name, owning_application="shop", schema=Schema.json({})))
    client.publish(name, [EVENT])
    wanted = Subscription(owning_application="shop", event_types=[name], read_from="begin", annotations=KEEPING)
    found = client.subscriptions.create(wanted).id
    letter = json.dumps(dead_letter(found, name, 0, {}))
    client.publish("nakadi.dead.letter.queue", [letter.replace('"event": {}', f'"event": {EVENT}')])
    return {"name": name, "id": found}


@pytest.mark.parametrize(("command", "form", "wanted"), COMMANDS, ids=str)
def test_numbers_keep_their_digits(rioni, names, command, form, wanted):
    arguments = shlex.split(f"{command.format(**names)} {form}")
    code, out, err = rioni(*arguments, stdin=EVENT if "try-filter" in command else "")
    assert code == 0, err
    assert [each for each in wanted if each not in out] == []


TIMES = [
    "2026-01-02T03:04:05.5Z",
    "2026-01-02T03:04:05Z",
    "2026-01-02 03:04:05Z",
    "2026-01-02T03:04:05.000000001+02:00",
]


@pytest.mark.parametrize(
    "command", ["tail {name} --no-follow", "search {name}", "subscriptions consume {id} --limit 4"]
)
def test_times_in_members_keep_their_texts(rioni, client, names, command):
    """Not even those that differ in their fraction, or in a letter, look alike."""
    name = f"{names['name']}.times"
    client.event_types.create(EventType(name=name, owning_application="shop", schema=Schema.json({})))
    client.publish(name, [{"t": each, "l": [each]} for each in TIMES])
    wanted = Subscription(owning_application="shop", event_types=[name], read_from="begin")
    found = client.subscriptions.create(wanted).id
    code, out, err = rioni(*shlex.split(f"{command.format(name=name, id=found)} --columns t,l,time"))
    assert code == 0, err
    rows = [line.split("  ") for line in out.splitlines()[1:]]
    assert [[each.strip() for each in row if each][:2] for row in rows] == [[each, each] for each in TIMES]
