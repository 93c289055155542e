"""Subjects with one name in two realms are two clients: nothing that is kept or counted for one is the other's."""

import contextlib
import re

import pytest

from tests.acceptance.conftest import event, problem
from tests.support.builders import event_type_body
from tests.support.commands import run_command
from tests.support.server import open_stream, running_server
from tests.support.tokens import ADMINISTRATOR, FULL_SCOPES, bearer, write_tokens


REALMS = ("services", "employees", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("namesakes")


@pytest.fixture(scope="module")
def server(folder):
    tokens = {f"in-{realm}": {"uid": "shop", "realm": realm, "scopes": list(FULL_SCOPES)} for realm in REALMS}
    write_tokens(folder / "tokens.toml", tokens)
    environment = {
        **ADMINISTRATOR,
        "RIONI_AUTH_MODE": "full",
        "RIONI_AUTH_TOKENS": str(folder / "tokens.toml"),
        "RIONI_STREAMS_PER_CLIENT_MAX": "1",
        "RIONI_AUDIT_READERS": "service:shop,user:shop",
    }
    with running_server(folder / "data", "--workers", "1", environment=environment) as server:
        yield server


@pytest.fixture
def clients(server):
    """A client for each realm."""
    with contextlib.ExitStack() as stack:
        found = {realm: stack.enter_context(server.client()) for realm in REALMS}
        for realm, client in found.items():
            client.headers.update(bearer(f"in-{realm}"))
        yield found


def test_namesakes_share_neither_idempotency_keys_nor_slots_nor_activity(clients):
    """Reference authorization#subjects."""
    first = clients["services"]
    assert first.post("/event-types", json=event_type_body(name="shared")).status_code == 201
    batch = [event("1")]
    for client in clients.values():
        for _ in range(2):
            sent = client.post("/event-types/shared/events", json=batch, headers={"Idempotency-Key": "mine"})
            assert sent.status_code == 200
    (partition,) = first.get("/event-types/shared/partitions").json()
    assert int(partition["newest_available_offset"][-18:]) + 1 == len(REALMS)
    producers = first.get("/event-types/shared/producers").json()["items"]
    assert sorted((each["client"], each.get("realm", ""), each["events"]) for each in producers) == [
        ("shop", realm, 1) for realm in sorted(REALMS)
    ]
    with contextlib.ExitStack() as streams:
        for client in clients.values():
            streams.enter_context(open_stream(client, "/event-types/shared/events?batch_limit=1"))
        problem(first.get("/event-types/shared/events"), 429, "You exceeded the maximum number")


def test_namesakes_do_not_report_each_others_jobs(clients):
    """Reference jobs."""
    job = {"kind": "archive", "name": "lake", "state": "running"}
    path = "/jobs/3c0e54cf-6a52-4f7d-9c65-31f3f4d0e7aa"
    assert clients["services"].put(path, json=job).json()["realm"] == "services"
    assert clients["employees"].put(path, json=job).status_code == 409
    assert clients["services"].put(path, json=job).status_code == 200


def test_the_audit_trail_tells_namesakes_apart(clients):
    """Reference audit#audit-entries, audit#audit-filters, audit#refused-requests."""
    for realm, client in clients.items():
        body = event_type_body(name=f"of-{realm or 'nobody'}")
        assert client.post("/event-types", json=body).status_code == 201
        problem(client.get("/settings/admins"), 403, "Admin privileges are required")
    auditor = clients["services"]

    def made(query):
        items = auditor.get(f"/audit?kind=event-type.created&actor=shop&{query}").json()["items"]
        return {each["resource"]: each.get("realm") for each in items if each["resource"].startswith("event-type:of-")}

    resources = {realm: f"event-type:of-{realm or 'nobody'}" for realm in REALMS}
    assert made("order=asc") == {resources[realm]: realm or None for realm in REALMS}
    assert made("realm=employees") == {resources["employees"]: "employees"}
    assert made("realm=employees&limit=1&order=asc") == {resources["employees"]: "employees"}
    assert made("realm=mployees") == {}
    problem(auditor.get("/audit?realm=employees"), 400, "realm: give the actor")
    denials = auditor.get("/audit/denials").json()["items"]
    refused = {each["realm"] for each in denials if (each["actor"], each["path"]) == ("shop", "/settings/admins")}
    assert refused == {*REALMS}


@pytest.mark.parametrize(
    ("command", "where"),
    [
        ("audit list --actor shop", "broker"),
        ("audit denials", "broker"),
        ("audit --actor shop", "host"),
        ("audit log {resource}", "host"),
    ],
)
def test_commands_show_actors_with_their_realm(server, clients, folder, monkeypatch, capsys, command, where):
    resource = f"shown-by-{command.split()[1]}"
    for realm, client in clients.items():
        client.post("/event-types", json=event_type_body(name=resource))
        client.put(f"/event-types/{resource}", json=event_type_body(name=resource) | {"labels": {"by": realm}})
        client.get("/settings/admins")
    place = ("--data", str(folder / "data")) if where == "host" else ("--url", server.url, "--token", "in-services")
    code, out, err = run_command(monkeypatch, capsys, *command.format(resource=resource).split(), *place)
    assert code == 0, err
    assert "shop (services)" in out
    assert "shop (employees)" in out
    assert re.search(r"\bshop (?!\()", out)
    assert "\nemployees" not in out
