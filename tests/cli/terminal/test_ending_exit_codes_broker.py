"""Whatever a broker refuses, each command ends with the documented code and one line that has the broker's reason."""

import pytest

from rioni.cli.app import app
from rioni.cli.connections import session
from tests.support.command_tree import leaves
from tests.support.scripted_server import Answer, scripted_server


ID = "00000000-0000-0000-0000-000000000000"
DETAIL = "the reason of the broker"
STATUSES = (401, 403, 404, 409, 422, 503)
CONNECTED = {
    " ".join(words)
    for words, each in leaves(app).items()
    if any("--url" in one.opts for one in each.params) and any("--timeout" in one.opts for one in each.params)
}
FILES = {
    "definition.yaml": "name: a\nowning_application: b\nschema: {schema: {}}\n",
    "schema.json": "{}",
    "events.jsonl": '{"a": 1}\n',
    "note": f"rioni.example/x\n1\n{'A' * 43}=\n\n— rioni.example/x AAAA\n",
}
EVENT_TYPE = {
    "name": "a",
    "owning_application": "b",
    "category": "data",
    "schema": {"type": "json_schema", "schema": "{}"},
    "items": [],
}
"""An answer to whatever is asked before an input is read."""
ARGUMENTS = {
    "archive": "--to lake --once --event-type a",
    "copy": "a b",
    "dead-letters list": ID,
    "dead-letters redrive": ID,
    "event-types apply": "definition.yaml --yes",
    "event-types check": "definition.yaml",
    "event-types consumers": "a",
    "event-types create": "a --owning-application b",
    "event-types delete": "a --yes",
    "event-types diff": "a --against b",
    "event-types edit": "a",
    "event-types producers": "a",
    "event-types show": "a",
    "event-types ticket": "a",
    "events delete": "a --file events.jsonl --key a --yes",
    "log consistency": "1",
    "log cosign": "note",
    "log inclusion": "1",
    "log tile": "0 000",
    "partitions distance": "a 0 BEGIN END",
    "partitions lag": "a 0:BEGIN",
    "partitions list": "a",
    "partitions set-count": "a 2 --yes",
    "partitions shift": "a 0:BEGIN --by 1",
    "partitions show": "a 0",
    "publish": "a events.jsonl",
    "rebuilds show": "x",
    "registry avro-schema": "batch.publishing 1",
    "registry avro-schemas": "batch.publishing",
    "schemas add": "a schema.json",
    "schemas check": "a schema.json",
    "schemas find": "a schema.json",
    "schemas list": "a",
    "schemas show": "a",
    "search": "a",
    "settings block": "PRODUCER_APP a",
    "settings disable": "x",
    "settings enable": "x",
    "settings set-admins": "--admin user:a --yes",
    "settings unblock": "PRODUCER_APP a",
    "storages create": "a --type embedded",
    "storages delete": "a --yes",
    "storages set-default": "a",
    "storages show": "a",
    "subscriptions close-stream": ID,
    "subscriptions commit": f"{ID} 0:BEGIN --stream-id {ID}",
    "subscriptions consume": ID,
    "subscriptions create": "--owning-application a --event-type b",
    "subscriptions cursors": ID,
    "subscriptions delete": f"{ID} --yes",
    "subscriptions edit": ID,
    "subscriptions ended-streams": ID,
    "subscriptions reset": f"{ID} --to begin --yes",
    "subscriptions show": ID,
    "subscriptions ticket": ID,
    "subscriptions try-filter": "true events.jsonl --event-type a",
    "tail": "a",
    "timelines create": "a default",
    "timelines list": "a",
    "types": "a",
    "witness": "--state witness",
}
"""Arguments for commands that need some before they make a request to the broker."""
FINDS = {
    # An event type that is not there is a new one.
    ("event-types check", 404): 0,
    # A broker that can't be asked is what it finds.
    **{("doctor", status): 1 for status in (*STATUSES, None)},
}
"""Answers that are no error of a command, with its exit code."""
GOES_ON = {("subscriptions consume", status) for status in (409, 422, 503, None)}
"""A consumer waits for a slot, and rides out what may pass."""
SAID_BEFORE = ("From the broker at ", "Compared with ", "This witness is ")
"""Lines that may come before the one with the error."""


@pytest.fixture
def server():
    with scripted_server() as scripted:
        yield scripted


@pytest.fixture
def command(run, tmp_path, monkeypatch):
    # Requests that fail would be repeated for seconds.
    monkeypatch.setattr(session, "ATTEMPTS", 1)
    monkeypatch.setenv("EDITOR", "true")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)

    def make(words, url):
        return run(*words.split(), *ARGUMENTS.get(words, "").split(), "--url", url, "--timeout", "1", stdin="")

    return make


def check(words, status, result, reason):
    code, _, err = result
    assert "Traceback" not in err
    assert code == FINDS.get((words, status), 2), (words, status, err)
    if code == 2:
        *before, last = err.splitlines()
        assert last.startswith("Error: "), (words, status, err)
        assert reason in last, (words, status, err)
        assert all(line.startswith(SAID_BEFORE) for line in before), (words, status, err)


@pytest.mark.parametrize("words", sorted(CONNECTED))
def test_what_a_broker_refuses_is_2_with_its_reason(command, server, words):
    """Reference exit-codes#codes."""
    for status in STATUSES:
        if (words, status) not in GOES_ON:
            body = {"title": "Refused", "status": status, "detail": DETAIL}
            server.script(Answer(status, body, {"Content-Type": "application/problem+json"}))
            check(words, status, command(words, server.url), DETAIL)


@pytest.mark.parametrize("words", sorted(CONNECTED))
def test_a_broker_that_does_not_answer_is_2_with_its_url(command, nowhere, words):
    if (words, None) not in GOES_ON:
        check(words, None, command(words, nowhere), nowhere)


@pytest.mark.parametrize(
    "words", sorted(words for words, text in ARGUMENTS.items() if any(each in text for each in FILES))
)
def test_an_input_that_can_not_be_read_is_2_with_its_name(run, server, words):
    """None of the files is there."""
    server.script(Answer(200, EVENT_TYPE))
    code, _, err = run(*words.split(), *ARGUMENTS[words].split(), "--url", server.url, stdin="")
    assert (code, "Traceback" in err) == (2, False), err
    assert any(name in err for name in FILES), err
    assert err.splitlines()[-1].startswith("Error: ")


def test_the_table_has_each_command_that_needs_arguments():
    needing = {
        " ".join(words)
        for words, each in leaves(app).items()
        if " ".join(words) in CONNECTED and any(one.required for one in each.params)
    }
    assert needing <= set(ARGUMENTS) <= CONNECTED
