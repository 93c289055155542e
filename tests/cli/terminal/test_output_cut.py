"""A list of which only the first items are shown says so, on stderr; one that is whole says nothing."""

import json

import pytest

from tests.support.scripted_server import Answer, scripted_server


SUBSCRIPTION = "e75c671a-daa0-551b-ba9c-00221276c1bb"
TIME = "2026-01-01T00:00:00Z"
WHO = {"actor": "jane", "realm": "users", "address": "", "user_agent": "", "flow_id": ""}
ENTRY = WHO | {"recorded_at": TIME, "kind": "event-type.created", "resource": "event-type:orders", "changes": []}
DENIAL = WHO | {"first_at": TIME, "last_at": TIME, "count": 1, "status": 403, "method": "GET", "path": "/audit"}
LETTER = {"event_type": "orders", "partition": "0", "kept_at": TIME, "error": {"message": "x"}, "event": {}}


def entries(count):
    return {"items": [ENTRY | {"position": n} for n in range(1, count + 1)]}


def denials(count):
    return {"items": [DENIAL] * count}


def letters(count):
    return {"items": [LETTER | {"offset": f"001-0001-{n:018}"} for n in range(count)]}


def facets(count, limit=3):
    values = [{"value": f"v{n}", "count": 1} for n in range(min(count, limit))]
    few = {"values": [], "distinct": 0}
    whole = dict.fromkeys(("category", "cleanup_policy", "label"), few)
    return {"total": count, "owning_application": {"values": values, "distinct": count}, **whole}


def history(count, limit=3):
    series = [{"name": f"m{n}", "labels": {}, "values": [1.0]} for n in range(min(count, limit))]
    return {"step": 10, "times": [TIME], "series": series, "matched": count}


COMMANDS = {
    "audit list": ("/audit", entries),
    "audit denials": ("/audit/denials", denials),
    f"dead-letters list {SUBSCRIPTION}": (f"/subscriptions/{SUBSCRIPTION}/dead-letters", letters),
    "event-types facets": ("/event-type-facets", facets),
    "monitoring history": ("/metrics/history", history),
}


@pytest.fixture(scope="module")
def server():
    with scripted_server() as server:
        yield server


@pytest.mark.parametrize("json_option", [[], ["--json"]])
@pytest.mark.parametrize(("count", "said"), [(2, False), (3, False), (4, True)])
@pytest.mark.parametrize("command", COMMANDS)
def test_it_says_that_there_are_more(run, server, command, count, said, json_option):
    path, body = COMMANDS[command]
    server.script_paths({path: [Answer(body=body(count))]})
    code, out, err = run(*command.split(), "--limit", "3", "--url", server.url, *json_option)
    assert code == 0, err
    assert ("--limit" in err) == said, err
    if json_option:
        assert len([json.loads(line) for line in out.splitlines()]) >= min(count, 3)
