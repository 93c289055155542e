"""Nodes that join and leave a cluster: the effects on the other nodes and on clients."""

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from rioni.cli.cluster.cluster import running_cluster
from tests.acceptance.conftest import partitions, problem, publish_orders
from tests.support.builders import event_type_body
from tests.support.nodes import running_nodes
from tests.support.server import PROMETHEUS, open_stream, running_server
from tests.support.tokens import ADMINISTRATOR, FULL_SCOPES, bearer, write_tokens
from tests.support.waiting import WAIT_S, wait_until


pytestmark = [pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.postgres, pytest.mark.slow]


EVENTS = {"Accept": "text/event-stream"}
SHORT_SESSIONS = {"RIONI_ZOOKEEPER_SESSION_TIMEOUT_S": "2"}


@pytest.fixture
def shared(cluster_environment):
    """The settings of a node of this test's cluster. Its sessions would outlive the test if they were not ended."""
    return cluster_environment() | {"RIONI_ZOOKEEPER_SESSION_TIMEOUT_S": "40"}


@pytest.fixture
def server(tmp_path, shared):
    """Two nodes, started one right after the other on an empty database."""
    with running_nodes(tmp_path, environment=shared) as nodes:
        yield nodes


def owned(client, subscription):
    """How many partitions each stream reads."""
    (stats,) = client.get(f"/subscriptions/{subscription}/stats").json()["items"]
    streams = [each["stream_id"] for each in stats["partitions"] if each["state"] == "assigned"]
    return {stream: streams.count(stream) for stream in streams}


def test_confirmed_changes_are_known_to_all_nodes(server, create, subscribe, name):
    first, second = server.nodes
    with first.client() as one, second.client() as two:
        create(name)
        for _ in range(5):
            assert two.put(f"/event-types/{name}", json=one.get(f"/event-types/{name}").json()).status_code == 200
        publish_orders(one, name, "1")
        publish_orders(two, name, "2")
        ends = [each.get(f"/event-types/{name}/partitions/0").json()["newest_available_offset"] for each in (one, two)]
        assert ends == ["001-0001-000000000000000001"] * 2
        assert one.delete(f"/event-types/{name}").status_code == 200
        assert two.get(f"/event-types/{name}").status_code == 404


def test_the_first_storage_is_one_that_all_nodes_can_use(client):
    """Reference settings-and-storages#first-storage."""
    (storage,) = client.get("/storages").json()
    assert storage.pop("kafka_configuration").keys() == {"bootstrap_servers"}
    assert storage == {"id": "default", "storage_type": "kafka", "default": True}
    checks = client.get("/readyz").json()["checks"]
    assert checks.keys() == {"database", "log", "access", "disk", "kafka", "zookeeper", "clock", "signing_key"}
    assert checks["kafka"]["status"] == "warning"
    assert "single broker" in checks["kafka"]["warnings"][0]


def test_nodes_without_a_shared_key_warn(server):
    """Reference operations, cluster#differences-from-a-single-node."""
    for node in server.nodes:
        assert any("Let log_signing_key name" in line for line in node.lines)
        with node.client() as client:
            (warning,) = client.get("/readyz").json()["checks"]["signing_key"]["warnings"]
        assert warning.startswith("Let log_signing_key name a copy of the same key on all nodes")


def test_workers_have_names_that_no_other_node_uses(server):
    names = set()
    for node in server.nodes:
        with node.client() as client:
            name = client.get("/livez").json()["worker"]
            assert (
                f'rioni_worker_info{{node="{socket.gethostname()}",worker="{name}"}} 1.0'
                in client.get("/metrics", headers=PROMETHEUS).text
            )
            names.add(name)
    assert len(names) == len(server.nodes)


def test_a_storage_that_only_one_node_could_use_is_rejected(client):
    """Reference settings-and-storages#create-storage."""
    answer = client.post("/storages", json={"id": "here", "storage_type": "embedded"})
    problem(answer, 422, "a storage of type embedded is in the data directory of one node")


def test_when_a_node_shuts_down_others_take_over_at_once(server, client, create, subscribe, name):
    """Reference operations#shutdown."""
    create(name, **partitions(4))
    subscription = subscribe(name, read_from="begin")
    path = f"/subscriptions/{subscription}/events?batch_flush_timeout=1&stream_timeout=60"
    staying, leaving = server.nodes
    with staying.client() as one, leaving.client() as two, staying.client() as other:
        with open_stream(one, path) as stays, open_stream(two, path) as leaves:
            wait_until(lambda: owned(other, subscription) == {stays.stream_id: 2, leaves.stream_id: 2})
            leaving.process.terminate()
            assert leaves.batches()[-1]["info"] == {"debug": "Server is shutting down"}
            wait_until(lambda: owned(other, subscription) == {stays.stream_id: 4})
            publish_orders(other, name, "1")
            assert [each["order_id"] for each in stays.events(1)] == ["1"]
        assert leaving.process.wait(WAIT_S) == 0
        assert other.get(f"/subscriptions/{subscription}").status_code == 200


def test_a_node_that_is_restarted_or_added_serves_the_same_as_the_others(
    server, client, create, name, tmp_path, shared
):
    create(name)
    publish_orders(client, name, "1")
    server.nodes[0].kill()
    for folder in ("node-1", "node-3"):
        with running_server(tmp_path / folder, "--workers", "1", environment=shared) as node, node.client() as again:
            assert again.get("/readyz").status_code == 200
            begin = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}
            with open_stream(again, f"/event-types/{name}/events?stream_limit=1", headers=begin) as stream:
                assert [each["order_id"] for each in stream.events(1)] == ["1"]


def test_the_partitions_of_a_killed_node_are_taken_over(tmp_path, shared, name):
    """Reference operations#worker-death."""
    with running_nodes(tmp_path, environment=shared | SHORT_SESSIONS) as nodes:
        staying, killed = nodes.nodes
        with staying.client() as one, killed.client() as two, staying.client() as other:
            subscription = prepared(other, name)
            path = f"/subscriptions/{subscription}/events?batch_flush_timeout=1&stream_timeout=60"
            with open_stream(one, path) as stays, open_stream(two, path) as gone:
                wait_until(lambda: owned(other, subscription) == {stays.stream_id: 2, gone.stream_id: 2})
                killed.kill()
                wait_until(lambda: owned(other, subscription) == {stays.stream_id: 4})


def prepared(client, name):
    """The id of a subscription to a new event type with four partitions."""
    assert client.post("/event-types", json=event_type_body(name=name, **partitions(4))).status_code == 201
    body = {"owning_application": name, "event_types": [name], "read_from": "begin"}
    return client.post("/subscriptions", json=body).json()["id"]


def test_an_unavailable_server_is_named_and_the_rest_works(tmp_path, shared, name):
    with running_cluster(brokers=0, zookeepers=1, postgres=False) as ensemble:
        (zookeeper,) = ensemble.zookeepers
        environment = shared | SHORT_SESSIONS | {"RIONI_ZOOKEEPER": ensemble.zookeeper}
        with running_nodes(tmp_path, environment=environment) as nodes, nodes.client() as client:
            subscription = prepared(client, name)
            begin = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}
            with nodes.client() as other, open_stream(other, f"/event-types/{name}/events", headers=begin) as stream:
                zookeeper.pause()
                answer = wait_until(lambda: (got := client.get("/readyz")).status_code == 503 and got)
                assert answer.json()["status"] == "failed"
                failed = {each for each, check in answer.json()["checks"].items() if check["status"] == "failed"}
                assert failed == {"zookeeper"}
                assert client.get("/livez").status_code == 200
                publish_orders(client, name, *map(str, range(40)))
                assert stream.events(1)
                assert client.get(f"/subscriptions/{subscription}/cursors").status_code == 503
                zookeeper.resume()
                wait_until(lambda: client.get("/readyz").status_code == 200)
                wait_until(lambda: client.get(f"/subscriptions/{subscription}/cursors").status_code == 200)


def test_a_ticket_of_one_node_opens_its_stream_once_at_all_nodes_together(tmp_path, shared, name):
    """Reference streams#tickets."""
    write_tokens(tmp_path / "tokens.toml", {"admin": {"uid": "stups_nakadi", "scopes": FULL_SCOPES}})
    settings = {
        **ADMINISTRATOR,
        "RIONI_AUTH_MODE": "full",
        "RIONI_AUTH_TOKENS": str(tmp_path / "tokens.toml"),
        "RIONI_LOG_SIGNING_KEY": str(tmp_path / "log-signing.key"),
    }
    with running_nodes(tmp_path / "nodes", environment=shared | settings) as nodes, contextlib.ExitStack() as stack:
        one, two = (stack.enter_context(node.client(headers=bearer("admin"))) for node in nodes.nodes)
        one.post("/event-types", json=event_type_body(name=name)).raise_for_status()
        path, wanted = f"/event-types/{name}/events", {"stream_timeout": 1, "batch_flush_timeout": 1}

        def opened(node, ticket):
            with node.client() as browser:
                return browser.get(path, params={**wanted, "ticket": ticket}, headers=EVENTS).status_code

        def ticket(client):
            answer = client.post("/stream-tickets", json={"path": path})
            assert answer.status_code == 201, answer.text
            return answer.json()["ticket"]

        first, second = nodes.nodes
        # The other node knows the event type as soon as the first one has answered.
        for issued, user, other in ((ticket(one), second, first), (ticket(two), first, second)):
            assert [opened(node, issued) for node in (user, other, user)] == [200, 401, 401]
        # At the same time, at both: one of them.
        issued = ticket(one)
        with ThreadPoolExecutor(4) as threads:
            statuses = [*threads.map(opened, [first, second] * 2, [issued] * 4)]
        assert sorted(statuses) == [200, 401, 401, 401]
