"""The broker can read all that it accepts, however odd: all answers are the same after a restart.

Valid bodies of every operation that writes get odd values, one at a time; `verify` has nothing to say about the result.
"""

import copy
import json
import random
import re
import uuid

from rioni.wire.subscriptions import REASON_CHARACTERS_MAX
from tests.acceptance.conftest import AUTHORIZATION, FULL_STATISTIC, SELECTOR, event
from tests.support.builders import event_type_body
from tests.support.commands import run_command
from tests.support.server import running_server


SEED, ODD_FOR_EACH = 7, 5
"""How many odd values each part of each body gets, of those below; numbers get all numbers."""
HERE = "here"
"""Stands in a body for an odd value, which may be JSON that Python would not write."""
NUMBERS = ("2.0", "2e0", "1e3", "-0", "-0.0", "0.5", "1e-7", "1e400", str(2**63 - 1), str(2**63), str(2**64), "9" * 400)
TEXTS = ("", "2", "A", " a ", "BEGIN", "eND", "\0", "\n", "\x1b[31m", "\u202e", "e\u0301", "\xe9", "\ufeff", "\u2028")
LONG = [size * "x" for size in (50, 255, 256, REASON_CHARACTERS_MAX + 1, 100_000)]
OTHERS = ('"\\ud800"', '{"a": "b", "a": "c"}', '{"": ""}', "{}", "[]", "[[[]]]", '["a", "a"]', "true", "null")
ODD = [*NUMBERS, *map(json.dumps, (*TEXTS, *LONG)), *OTHERS]

NAME, SUBSCRIPTION, JOB = "kept.order", str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
CURSOR = {"event_type": NAME, "partition": "0", "offset": "BEGIN"}
EVENT_TYPE = event_type_body(
    name=NAME,
    annotations={"a.b/c": "d"},
    labels={"a": "b"},
    authorization=AUTHORIZATION,
    default_statistic=FULL_STATISTIC,
    options={"retention_time": 20_000_000},
    partition_strategy="hash",
    partition_key_fields=["order_id"],
    event_owner_selector=SELECTOR,
)
READERS = {name: AUTHORIZATION[name] for name in ("admins", "readers")}
SUBSCRIBED = {"owning_application": "shop", "event_types": [NAME], "consumer_group": "a", "read_from": "end"}
BODIES = {
    "POST /event-types": EVENT_TYPE,
    "PUT /event-types/{name}": EVENT_TYPE,
    "POST /event-types/{name}/schemas": {"type": "json_schema", "schema": "{}"},
    "PUT /event-types/{name}/partition-count": {"partition_count": 2},
    "POST /event-types/{name}/partition-count": {"partition_count": 2},
    "POST /event-types/{name}/timelines": {"storage_id": "default"},
    "POST /event-types/{name}/events": [event()],
    "POST /event-types/{name}/deleted-events": [{"metadata": {"partition_compaction_key": "a"}}],
    "POST /subscriptions": SUBSCRIBED | {"read_from": "cursors", "initial_cursors": [CURSOR], "authorization": READERS},
    "PUT /subscriptions/{subscription_id}": SUBSCRIBED | {"authorization": READERS, "annotations": {}, "labels": {}},
    "PATCH /subscriptions/{subscription_id}/cursors": {"items": [CURSOR | {"shift": 0}]},
    "POST /subscriptions/{subscription_id}/cursors": {"items": [CURSOR | {"cursor_token": "x"}]},
    "POST /subscriptions/{subscription_id}/streams/{stream_id}/failures": {"items": [CURSOR | {"reason": "x"}]},
    "POST /subscriptions/{subscription_id}/dead-letters/redrive": {"event_type": NAME, "limit": 2, "after": CURSOR},
    "POST /log/cosignatures": {"note": "a\n1\nb\n\n\u2014 c d\n"},
    "PUT /jobs/{job_id}": {"kind": "archive", "name": "a", "state": "running", "done": 1, "total": 2, "detail": "b"},
    "POST /settings/admins": AUTHORIZATION,
    "POST /settings/features": {"feature": "disable_event_type_deletion", "enabled": False},
    "POST /storages": {"id": "kept", "storage_type": "embedded", "default": False},
}
KEEP_NOTHING = (
    "POST /event-types/{name}/schemas/{version}/compatibility-check",
    "POST /event-types/{name}/cursor-distances",
    "POST /event-types/{name}/shifted-cursors",
    "POST /event-types/{name}/cursors-lag",
    "POST /filter-evaluations",
    "POST /stream-tickets",
    "POST /subscriptions/{subscription_id}/events",
    "POST /subscriptions/{subscription_id}/dead-letters/redrive/preview",
)
OWN = {"POST /event-types": "name", "POST /subscriptions": "consumer_group", "POST /storages": "id"}
"""The member that tells what such an operation creates from what was created before."""
READ = (
    "/event-types?limit=1000",
    "/subscriptions?limit=1000",
    "/audit?states=true&limit=1000",
    "/storages",
    "/jobs",
    "/settings/admins",
    "/settings/blacklist",
    "/settings/features",
)
BETWEEN = ("/event-types/{name}", "/event-types/{name}/timelines", "/subscriptions/{subscription_id}/cursors")
"""Paths that are read after each write, since the next write may replace the value."""


def served(folder):
    unlimited = {"RIONI_QUOTA_CHANGES_PER_MINUTE": "0", "RIONI_QUOTA_CHANGE_BYTES_PER_MINUTE": "0"}
    return running_server(folder, "--workers", "1", environment=unlimited)


def with_odd_values(operation, rng, numbers):
    """The body of an operation as JSON, with odd values in each of its parts."""
    for path, value in parts(BODIES[operation]):
        for odd in NUMBERS if type(value) is int else rng.sample(ODD, ODD_FOR_EACH):
            body = replaced(copy.deepcopy(BODIES[operation]), path)
            own = OWN.get(operation)
            if own and isinstance(body, dict) and body[own] != HERE:
                body[own] = f"kept{next(numbers)}"
            yield json.dumps(body).replace(f'"{HERE}"', odd).encode()


def parts(value, path=()):
    """A value and all values in it, each after its path."""
    yield path, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield from parts(each, (*path, name))


def replaced(value, path):
    if not path:
        return HERE
    value[path[0]] = replaced(value[path[0]], path[1:])
    return value


def answers(client):
    """All that can be read of what was written."""
    found = {path: client.get(path) for path in READ}
    names = [each["name"] for each in found["/event-types?limit=1000"].json()]
    ids = [each["id"] for each in found["/subscriptions?limit=1000"].json()["items"]]
    paths = [f"/event-types/{name}/{each}" for name in names for each in ("schemas", "timelines", "partitions")]
    paths += [f"/subscriptions/{each}/cursors" for each in ids]
    found |= {path: client.get(path) for path in paths}
    assert {path: each.text for path, each in found.items() if each.status_code != 200} == {}
    # Each answer makes its own tokens.
    return {path: re.sub(r'"cursor_token":"[^"]*"', "", each.text) for path, each in found.items()}


def test_there_are_bodies_for_all_operations_that_keep_something(client):
    described = client.get("/openapi.json").json()["paths"]
    operations = (
        (f"{method.upper()} {path}", each) for path, item in described.items() for method, each in item.items()
    )
    taking = {name for name, each in operations if "requestBody" in each}
    assert taking == {*BODIES, *KEEP_NOTHING}


def test_what_was_accepted_can_be_read_again(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "data"
    rng, numbers = random.Random(SEED), iter(range(10_000))
    accepted = dict.fromkeys(BODIES, 0)
    with served(folder) as server, server.client() as client:
        client.post("/event-types", json=EVENT_TYPE).raise_for_status()
        client.post(f"/event-types/{NAME}/timelines", json={"storage_id": "default"}).raise_for_status()
        at = {"name": NAME, "job_id": JOB, "stream_id": SUBSCRIPTION}
        at["subscription_id"] = client.post("/subscriptions", json=SUBSCRIBED).raise_for_status().json()["id"]
        for operation in BODIES:
            method, path = operation.split()
            for body in with_odd_values(operation, rng, numbers):
                answer = client.request(method, path.format_map(at), content=body)
                assert answer.status_code < 500, (operation, body[:1_000], answer.text)
                accepted[operation] += answer.is_success
                for each in BETWEEN if answer.is_success else ():
                    assert client.get(each.format_map(at)).status_code == 200, (operation, body[:1_000], each)
        before = answers(client)
    assert sum(map(bool, accepted.values())) > len(BODIES) / 2, accepted
    with served(folder) as server, server.client() as client:
        assert answers(client) == before
    code, said, _ = run_command(monkeypatch, capsys, "verify", "--data", str(folder))
    assert (code, "Nothing is damaged or missing." in said) == (0, True), said
