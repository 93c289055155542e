"""Commands that ask a broker have no way of their own to an effect: they make the requests of their row, and no others.

Source: reference authorization#commands-that-ask-a-broker. What each says of a refused request:
tests/cli/terminal/test_ending_exit_codes_broker.py.
"""

import sys

import pytest

from rioni.cli import app
from rioni.cli.connections import session
from tests.support.command_tree import leaves
from tests.support.commands import run_command
from tests.support.served import served
from tests.support.value_tables import rows_of
from tests.support.ways import COMPACTED, ET, OPEN, ROOT, UNKNOWN_ID, WAYS, uid_of, without, world


CONNECTED = {
    " ".join(words): command
    for words, command in leaves(app.app).items()
    if any("--timeout" in each.opts for each in command.params)
}
S = "{subscription_id}"
EDITOR = """
import pathlib, sys, yaml
file = pathlib.Path(sys.argv[1])
file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"labels": {"edited": "x"}}))
"""
_APPLIED = """
name: ways.applied
owning_application: ways.applied
category: undefined
schema: {schema: {}}
---
owning_application: ways.applied
event_types: [ways.applied]
"""
FILES = {
    "definition.yaml": _APPLIED,
    "changed.yaml": _APPLIED.replace("schema:", "labels: {a: b}\nschema:", 1) + "labels: {a: b}\n",
    "other.yaml": _APPLIED.partition("---")[0].replace("ways.applied", "ways.other"),
    "editor.py": EDITOR,
    "schema.json": "{}",
    "events.jsonl": '{"order_id": "1"}\n',
    "note": f"rioni.example/x\n1\n{'A' * 43}=\n\n— rioni.example/x AAAA\n",
}
ARGUMENTS = {
    "archive": f"--to lake --once --event-type {ET}",
    "bench consume": f"--event-type {ET} --connections 1 --seconds 1 --events 1",
    "bench publish": "--event-type ways.bench --connections 1 --requests 1",
    "copy": (f"{ET} {COMPACTED} --state state", f"{ET} ways.copied --create"),
    "dead-letters list": S,
    "dead-letters redrive": (S, f"{S} --dry-run"),
    "doctor": "--interval 0.01",
    "event-types apply": (
        "definition.yaml --yes",
        "changed.yaml --yes",
        "other.yaml --prune --prune-subscriptions --owning-application ways.applied --yes",
    ),
    "event-types check": "definition.yaml",
    "event-types consumers": ET,
    "event-types create": "ways.created --owning-application b",
    "event-types delete": "ways.created --yes",
    "event-types diff": f"{ET} --against {COMPACTED}",
    "event-types edit": f"{ET} --yes",
    "event-types producers": ET,
    "event-types show": ET,
    "event-types ticket": ET,
    "events delete": f"{COMPACTED} 1 --yes",
    "log consistency": "1",
    "log cosign": "note",
    "log inclusion": "1",
    "log tile": "0 000.p/1",
    "partitions distance": f"{ET} 0 BEGIN END",
    "partitions lag": f"{ET} 0:BEGIN",
    "partitions list": ET,
    "partitions set-count": f"{OPEN} 2 --yes",
    "partitions shift": f"{ET} 0:BEGIN --by 1",
    "partitions show": f"{ET} 0",
    "publish": f"{ET} events.jsonl",
    "rebuilds show": UNKNOWN_ID,
    "registry avro-schema": "batch.publishing 1",
    "registry avro-schemas": "batch.publishing",
    "schemas add": f"{ET} schema.json",
    "schemas check": f"{ET} schema.json",
    "schemas find": f"{ET} schema.json",
    "schemas list": ET,
    "schemas show": ET,
    "search": ET,
    "settings block": ("PRODUCER_APP a", f"PRODUCER_ET {ET}"),
    "settings disable": "kpi_collection",
    "settings enable": "kpi_collection",
    "settings rights": f"--event-type {ET} --subscription {S}",
    "settings set-admins": "--admin user:a --yes",
    "settings unblock": "PRODUCER_APP a",
    "storages create": "other --type embedded",
    "storages delete": "other --yes",
    "storages set-default": "default",
    "storages show": "default",
    "subscriptions close-stream": f"{S} {UNKNOWN_ID}",
    "subscriptions commit": f"{S} {ET}:0:BEGIN --stream-id {UNKNOWN_ID}",
    "subscriptions consume": "{owned} --limit 1 --idle 2",
    "subscriptions create": f"--owning-application b --event-type {ET}",
    "subscriptions cursors": S,
    "subscriptions delete": "{spare} --yes",
    "subscriptions edit": f"{S} --yes",
    "subscriptions ended-streams": S,
    "subscriptions reset": "{owned} --to begin --yes",
    "subscriptions show": S,
    "subscriptions ticket": S,
    "subscriptions try-filter": f"true events.jsonl --event-type {ET}",
    "subscriptions watch": "--count 1",
    "tail": f"{ET} --last 1 --no-follow",
    "timelines create": f"{ET} default",
    "timelines list": ET,
    "types": ET,
    "witness": "--state witness",
}


ROWS = {
    command.removeprefix("rioni "): {*ways.split("`, `")}
    for command, ways in rows_of("authorization", "Commands that ask a broker")
}
PROPOSING = {"GET /event-types", "GET /subscriptions"}
"""Further requests if a name, or anything at all, is not found: for names that may be meant."""


@pytest.fixture
def ways_of(tmp_path, monkeypatch, capsys):
    """The ways that a command goes, for an administrator."""
    monkeypatch.setattr(session, "ATTEMPTS", 1)
    monkeypatch.setenv("EDITOR", f"{sys.executable} editor.py")
    monkeypatch.setenv("RIONI_CONTEXTS", str(tmp_path / "contexts.toml"))
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    with world(tmp_path, "full") as full, served(full.broker.app) as server:

        def ways_of(command, token=ROOT):
            server.asked.clear()
            lines = ARGUMENTS.get(command, "")
            for line in [lines] if isinstance(lines, str) else lines:
                arguments = line.format(**full.names, spare=full.spare()).split()
                connection = ("--url", server.url, "--token", token)
                code, _, err = run_command(monkeypatch, capsys, *command.split(), *arguments, *connection, stdin="")
                assert code in (0, 1) or (" 4" in err and token == ROOT), (command, line, err)
            found = [{str(way) for way in WAYS if way.was_gone(each.method, each.path)} for each in server.asked]
            assert all(found), server.asked
            return set().union(*found)

        yield ways_of


def test_each_command_that_asks_a_broker_has_a_row():
    assert ROWS.keys() == {*CONNECTED}
    assert [name for name, command in CONNECTED.items() if any("--data" in each.opts for each in command.params)] == [
        "doctor"
    ]


def test_commands_make_the_requests_of_their_rows_and_no_others(ways_of):
    wrong = {}
    for command in CONNECTED:
        made, row = ways_of(command), ROWS[command]
        if not row <= made <= row | PROPOSING:
            wrong[command] = [*(f"+{each}" for each in made - row - PROPOSING), *(f"-{each}" for each in row - made)]
    assert wrong == {}


def test_who_may_unblock_needs_no_right_to_see_what_is_blocked(ways_of):
    writer = f"{uid_of(without('broker READ'))}/all"
    assert ways_of("settings block", writer) | ways_of("settings unblock", writer) == (
        ROWS["settings block"] | ROWS["settings unblock"]
    )
