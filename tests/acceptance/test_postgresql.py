"""The registry in PostgreSQL: the behaviour of a server while its database is down, and when it is back."""

import uuid

import httpx
import psycopg
import pytest

from rioni.cli.cluster.postgres import running_postgres
from tests.acceptance.conftest import event, problem
from tests.support.builders import event_type_body
from tests.support.postgres import crash, suspended
from tests.support.server import open_stream, running_server
from tests.support.waiting import wait_until


pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture(scope="module")
def postgres():
    """A separate server, which may be stopped and started."""
    with running_postgres() as postgres:
        yield postgres


@pytest.fixture(scope="module")
def server(postgres, tmp_path_factory):
    data = tmp_path_factory.mktemp("data") / "rioni"
    environment = {"RIONI_DATABASE": postgres.get_uri(driver="psycopg")}
    with running_server(data, "--workers", "2", environment=environment) as running:
        yield running


def order_ids(events):
    return [each["order_id"] for each in events]


def test_confirmed_changes_are_known_to_every_worker(server):
    """Each client keeps its connection, and so its worker."""
    clients = [server.client() for _ in range(8)]
    for number in range(16):
        name = f"test.event-{uuid.uuid4().hex[:8]}"
        creator = clients[number % 8]
        assert creator.post("/event-types", json=event_type_body(name=name)).status_code == 201
        for client in clients:
            assert client.post(f"/event-types/{name}/events", json=[event("1")]).status_code == 200
        assert creator.delete(f"/event-types/{name}").status_code == 200
        for client in clients:
            problem(client.post(f"/event-types/{name}/events", json=[event("1")]), 404)
    for client in clients:
        client.close()


def test_after_a_crash_of_the_database_requests_are_503_until_it_is_back_and_streams_continue(
    server, postgres, client, create, subscribe, name
):
    create(name)
    subscription = subscribe(name)
    workers = server.workers()
    low_level = f"/event-types/{name}/events?batch_flush_timeout=1"
    subscribed = f"/subscriptions/{subscription}/events?batch_flush_timeout=1"
    with (
        server.client() as one,
        server.client() as two,
        open_stream(one, low_level) as stream,
        open_stream(two, subscribed) as committing,
    ):
        for each in (stream, committing):
            each.batch()
        assert client.post(f"/event-types/{name}/events", json=[event("before")]).status_code == 200
        cursor = committing.filled_batch()["cursor"]
        assert order_ids(stream.events(1)) == ["before"]
        crash(postgres)
        try:
            requests = [
                ("GET", "/event-types", None),
                ("GET", f"/event-types/{name}", None),
                ("POST", "/event-types", event_type_body(name=f"{name}.second")),
                ("DELETE", f"/event-types/{name}", None),
                ("POST", f"/event-types/{name}/events", [event("away")]),
                ("GET", low_level, None),
                ("GET", subscribed, None),
                ("GET", f"/subscriptions/{subscription}/cursors", None),
            ]
            for method, path, body in requests:
                problem(
                    client.request(method, path, json=body), 503, "The database can't be reached now. Try again later."
                )
            # Keep-alives, of more than one second.
            for each in (stream, committing):
                for _ in range(3):
                    assert "events" not in each.batch()
        finally:
            postgres.ensure_postgres_running()

        def published():
            response = client.post(f"/event-types/{name}/events", json=[event("after")])
            return response.status_code == 200 or not problem(response, 503)

        wait_until(published)
        assert order_ids(stream.events(1)) == ["after"]
        assert order_ids(committing.events(1)) == ["after"]
        assert client.post("/event-types", json=event_type_body(name=f"{name}.second")).status_code == 201
        cursors = {"items": [cursor | {"event_type": name}]}
        path, headers = f"/subscriptions/{subscription}/cursors", {"X-Nakadi-StreamId": committing.stream_id}
        assert client.post(path, json=cursors, headers=headers).status_code == 204
    assert server.workers() == workers
    assert not [line for line in server.lines if "unexpected error" in line]


def test_while_the_database_is_suspended_streams_continue(server, postgres, client, create, name):
    create(name)
    with server.client() as reader, keep_alive_stream(reader, name) as stream:
        with suspended(postgres):
            # Longer than any cached state is used.
            for _ in range(5):
                assert "events" not in stream.batch()
            with pytest.raises(httpx.ReadTimeout):
                client.post(f"/event-types/{name}/events", json=[event("paused")], timeout=0.5)
        assert client.post(f"/event-types/{name}/events", json=[event("after")]).status_code == 200
        # Requests whose clients have stopped waiting may be stored, or not.
        stream.events_until(lambda events: "after" in order_ids(events), "the event that was published after the pause")


def test_while_a_known_change_can_not_be_read_streams_continue(server, postgres, create, name):
    """Each worker was notified of a change, but the database does not answer its query."""
    create(name)
    with (
        psycopg.connect(postgres.get_uri()) as holder,
        psycopg.connect(postgres.get_uri(), autocommit=True) as other,
        server.client() as reader,
        keep_alive_stream(reader, name) as stream,
    ):
        stream.batch()
        holder.execute("LOCK TABLE log IN ACCESS EXCLUSIVE MODE")
        other.execute("UPDATE head SET position = position + 1")
        other.execute("SELECT pg_notify('rioni_log', '')")
        try:
            for _ in range(5):
                assert "events" not in stream.batch()
        finally:
            other.execute("UPDATE head SET position = position - 1")


def keep_alive_stream(reader, name):
    """A stream with a keep-alive each second; what waits for the database waits for longer than the time-out here."""
    return open_stream(reader, f"/event-types/{name}/events?batch_flush_timeout=1", timeout=10)
