"""Definitions that are expensive to check: they are rejected or checked, and meanwhile other requests are answered."""

import json
import re
import threading
import time
from functools import partial

import pytest

from rioni.domain.limits import ATTRIBUTES_MAX, PATHS_MAX
from tests.acceptance.conftest import json_schema
from tests.support.builders import event_type_body


OTHERS_S_MAX = 5.0
"""A single one of these definitions stopped every change of the registry for 75 to 110 s."""


def doubling(levels):
    """A schema of 2 kB whose first object refers twice to the next one, and so on."""
    definitions = {f"d{n}": {"anyOf": [{"$ref": f"#/definitions/d{n + 1}"}] * 2} for n in range(levels)}
    return {"definitions": definitions | {f"d{levels}": {}}, "properties": {"a": {"$ref": "#/definitions/d0"}}}


def with_paths(count):
    return {
        "schema": json_schema(**doubling(14)),
        "ordering_key_fields": [f"a.absent_{number}" for number in range(count)],
        "partition_strategy": "hash",
        "partition_key_fields": [f"a.absent_{number}" for number in range(count)],
    }


def with_readers(count):
    lists = {name: [{"data_type": "user", "value": "admin"}] for name in ("admins", "writers")}
    readers = [{"data_type": "user", "value": f"reader_{number}"} for number in range(count)]
    return {"authorization": {**lists, "readers": [*readers, readers[0]]}}


def with_many(names):
    return {"labels": {}, names: {f"label-{n}": "x" for n in range(50_000)}}


ATTACKS = [
    pytest.param(partial(with_paths, 500), 422, "ordering_key_fields.*more than 100 elements", id="500 paths"),
    pytest.param(partial(with_paths, 5_000), 422, "ordering_key_fields.*more than 100 elements", id="5,000 paths"),
    pytest.param(partial(with_paths, PATHS_MAX), 422, "absent in schema|too long", id="as many paths as may be"),
    pytest.param(
        partial(with_readers, 40_000), 422, "authorization.readers.*more than 1000 elements", id="40,000 readers"
    ),
    pytest.param(partial(with_readers, 400_000), 413, "", id="400,000 readers"),
    pytest.param(partial(with_readers, ATTRIBUTES_MAX - 1), 422, "duplicated", id="as many readers as may be"),
    pytest.param(partial(with_many, "labels"), 422, "labels.*100 elements", id="labels"),
    pytest.param(partial(with_many, "annotations"), 422, "100", id="annotations"),
]


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(("changed", "status", "detail"), ATTACKS)
def test_other_requests_do_not_wait_for_an_expensive_definition(server, client, name, changed, status, detail, times):
    """Reference event-types#definition-limits, common#body-limits."""
    # Encoded beforehand, so that this process, which measures, has nothing else to do.
    body = json.dumps(event_type_body(name=name) | changed()).encode()
    headers = {"Content-Type": "application/json"}
    answers = []

    def attack():
        with server.client() as attacker:
            answers.append(attacker.post("/event-types", content=body, headers=headers, timeout=300))

    attackers = [threading.Thread(target=attack) for _ in range(times)]
    for each in attackers:
        each.start()
    longest_s = 0.0
    while any(each.is_alive() for each in attackers):
        for method, path, content in (
            ("GET", "/event-types?limit=1", None),
            ("POST", "/settings/features", {"feature": "kpi_collection", "enabled": False}),
        ):
            begun_s = time.monotonic()
            response = client.request(method, path, json=content)
            longest_s = max(longest_s, time.monotonic() - begun_s)
            assert response.is_success, response.text
    for each in attackers:
        each.join()
    assert longest_s < OTHERS_S_MAX
    assert [each.status_code for each in answers] == [status] * times, answers[0].text[:500]
    assert all(re.search(detail, each.text) for each in answers)
