"""Whatever names one of a known set proposes the nearest name when it is not one of them, and changes nothing.

`test_names_unknown` has the texts for which shells complete no names.
"""

import uuid
from pathlib import Path

import pytest

from rioni.cli.app import app
from rioni.cli.connections import completions
from rioni.client import EventType, Schema, Subscription
from tests.support.command_tree import choices_of, info_of, leaves


COMMANDS = leaves(app)
REQUIRED = {
    "event_type": "{name}",
    "event_types": "{name}",
    "source": "{name}",
    "target": "{name}",
    "subscription": "{name}/default",
    "expression": "event.a == 1",
    "partition": "0",
    "first": "1",
    "last": "2",
    "count": "2",
    "cursors": "0:BEGIN",
    "file": "schema.json",
    "stream": str(uuid.UUID(int=1)),
    "storage": "default",
    "by": "1",
    "version": "1.0.0",
    "places": "{name}:0:BEGIN",
    "kind": "producer_app",
    "name": "x",
    "feature": "remote_tokeninfo",
    "batch": "batch.publishing",
    "position": "1",
    "size": "2",
    "level": "0",
    "rest": "0",
    "paths": "schema.json",
    "key": "witness.key",
    "state": "witness.state",
    "to": "lake",
    "stream_id": str(uuid.UUID(int=1)),
}
"""Values of arguments and options that a command must have, by name."""
FURTHER = {
    ("subscriptions", "reset"): ["--to", "begin"],
    ("subscriptions", "create"): ["--owning-application", "shop"],
    ("subscriptions", "commit"): ["--stream-id", str(uuid.UUID(int=1))],
    ("subscriptions", "watch"): ["--count", "1"],
    ("events", "delete"): ["key"],
    ("archive",): ["--to", "lake", "--once"],
}
"""Options without which a command does not come to the name, or does not end."""
ASKS = ("--yes", "--no-follow")
NO_NAMES = {
    ("event-types", "diff", "against_context"): "is looked at after the file",
}
FILTERS = {
    ("audit", "list", "resource"),
    ("monitoring", "history", "event_type"),
    ("subscriptions", "lag", "event_type"),
    ("subscriptions", "list", "event_type"),
    ("subscriptions", "watch", "event_type"),
}
"""Parameters that filter: a name that selects nothing is no error."""
FOUND = {
    completions.event_types: "{name}",
    completions.subscriptions: "{name}/default",
    completions.storages: "default",
    completions.features: "remote_tokeninfo",
    completions.resources: "event-type:{name}",
}


NAMED = [
    pytest.param(words, param, FOUND[known], id=" ".join((*words, param.opts[-1])))
    for words, command in COMMANDS.items()
    for param in command.params
    if (known := getattr(info_of(param), "autocompletion", None)) in FOUND and (*words, param.name) not in NO_NAMES
]
IN_CONTEXT = [
    pytest.param(words, param, id=" ".join((*words, param.opts[-1])))
    for words, command in COMMANDS.items()
    for param in command.params
    if getattr(info_of(param), "autocompletion", None) is completions.contexts and (*words, param.name) not in NO_NAMES
]


CHOICES = [
    pytest.param(words, param, found[-1], id=" ".join((*words, param.opts[-1])))
    for words, command in COMMANDS.items()
    for param in command.params
    if (found := choices_of(param))
]


@pytest.fixture(scope="module")
def name(client):
    """An event type, and the application of a subscription to it."""
    made = f"suggested-{uuid.uuid4().hex[:8]}"
    client.event_types.create(EventType(name=made, owning_application="shop", schema=Schema.json({})))
    client.subscriptions.create(Subscription(owning_application=made, consumer_group="default", event_types=[made]))
    return made


def arguments(words, param, value, name):
    """The words of a command with a value for one of its parameters, and whatever else it must have."""
    found = [*words]
    for each in COMMANDS[words].params:
        if each is param or each.required:
            text = value if each is param else REQUIRED[each.name].format(name=name)
            found += [each.opts[-1], text] if each.opts[-1].startswith("-") else [text]
        found += [each.opts[-1]] * (each.opts[-1] in ASKS)
    return found + [each for each in FURTHER.get(words, []) if each not in found]


def test_the_parameters_of_this_test_are_many():
    assert len(NAMED) > 50
    assert len(IN_CONTEXT) > 50
    assert len(CHOICES) > 12


@pytest.mark.parametrize(("words", "param", "right"), NAMED)
def test_a_name_that_the_broker_does_not_know_proposes_the_nearest(rioni, state, words, param, right, name):
    Path("schema.json").write_text("{}")
    right = right.format(name=name)
    before = state()
    code, out, err = rioni(*arguments(words, param, f"{right}x", name), stdin="{}\n")
    assert (code, out) == (0 if (*words, param.name) in FILTERS else 2, "")
    *_, last = err.splitlines()
    assert err.count("Error: ") == (code == 2) == last.startswith("Error: ")
    assert last.endswith(f"id you mean {right}?") or f"; did you mean {right}? " in last
    assert err.count("id you mean") == 1
    assert state() == before


@pytest.mark.parametrize(("words", "param"), IN_CONTEXT)
def test_an_unknown_context_proposes_the_nearest(run, words, param, tmp_path):
    (tmp_path / "contexts.toml").write_text('[contexts.production]\nurl = "http://127.0.0.1:1"\n')
    (tmp_path / "contexts.toml").chmod(0o600)
    (tmp_path / "schema.json").write_text("{}")
    err = "Error: There is no context prodution; did you mean production? `rioni context add` makes one.\n"
    assert run(*arguments(words, param, "prodution", "x"), stdin="{}\n") == (2, "", err)


@pytest.mark.parametrize(("words", "param", "right"), CHOICES)
def test_a_wrong_choice_proposes_the_nearest(run, words, param, right):
    code, out, err = run(*arguments(words, param, f"{right}x", "x"))
    assert (code, out) == (2, "")
    assert f"Did you mean {right.lower()}?" in err
    assert "Value error" not in err


@pytest.mark.parametrize(
    ("command", "right"),
    [
        ("cheat pblish", "publish"),
        ("tial", "'tail'"),
        ("audit lgo", "'log'"),
    ],
)
def test_whatever_else_is_one_of_a_known_set_proposes_the_nearest(run, command, right):
    code, out, err = run(*command.split(), stdin="{}\n")
    assert (code, out) == (2, "")
    assert f"id you mean {right}?" in err
    assert err.count("\n") == 1
