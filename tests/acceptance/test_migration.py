"""Migrating a broker from its data directory to a cluster, without effects on clients."""

import uuid
from contextlib import closing

import pytest

from rioni.commands.timelines.timelines import CloseTimeline, StartSwitch
from rioni.config.settings import Config
from rioni.domain.errors import Conflict, Unavailable
from rioni.installation.infrastructure import build_infrastructure
from rioni.operations import migration
from rioni.operations.migration import migrate
from rioni.server.startup import prepare_startup
from tests.acceptance.conftest import event, partitions, publish_orders
from tests.support.builders import event_type_body
from tests.support.server import open_stream, refused_start, running_server
from tests.support.waiting import wait_until


pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow]


ONCE = {"annotations": {"rioni.io/idempotent-publishing": "on"}}


class Interrupted(Exception):
    """Raised to interrupt a migration."""


@pytest.fixture
def cluster(kafka_cluster, zookeeper_cluster, postgres_url):
    """The settings of a node of an empty cluster."""
    return {
        "kafka": kafka_cluster.kafka,
        "zookeeper": f"{zookeeper_cluster.zookeeper}/{uuid.uuid4()}",
        "database": postgres_url(),
    }


@pytest.fixture
def node(cluster, tmp_path):
    """Starts a node of the cluster."""
    return lambda: running_server(
        tmp_path / "node", environment={f"RIONI_{name.upper()}": value for name, value in cluster.items()}
    )


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


def consume(server, subscription, count):
    """Read `count` events and commit them; return their order ids."""
    path = f"/subscriptions/{subscription}/events?batch_limit=1&batch_flush_timeout=1"
    order_ids = []
    with server.client() as other, server.client() as client, open_stream(other, path) as stream:
        while len(order_ids) < count:
            batch = stream.batch()
            order_ids += [each["order_id"] for each in batch.get("events", ())]
            headers = {"X-Nakadi-StreamId": stream.stream_id}
            commit = client.post(
                f"/subscriptions/{subscription}/cursors", json={"items": [batch["cursor"]]}, headers=headers
            )
            assert commit.status_code in (200, 204), commit.text
    return order_ids


def history(data):
    """A broker with two timelines, a compacted event type, deduplicated events, and a subscription read halfway."""
    with running_server(data, "--workers", "1") as server, server.client() as client:
        client.post("/event-types", json=event_type_body(name="a", **partitions(2)))
        compacted = event_type_body(name="b", cleanup_policy="compact")
        assert client.post("/event-types", json=compacted).status_code == 201
        body = {"owning_application": "x", "event_types": ["a"], "read_from": "begin"}
        subscription = client.post("/subscriptions", json=body).json()["id"]
        publish_orders(client, "a", *map(str, range(15)))
        assert client.post("/event-types/a/timelines", json={"storage_id": "default"}).status_code == 201
        publish_orders(client, "a", *map(str, range(15, 25)))
        for body in (event_type_body(name="c"), event_type_body(name="d", **ONCE)):
            assert client.post("/event-types", json=body).status_code == 201
        publish_again(client)
        keyed = event("1") | {"metadata": event("1")["metadata"] | {"partition_compaction_key": "k"}}
        assert client.post("/event-types/b/events", json=[keyed]).status_code == 200
        read = consume(server, subscription, 18)
        return subscription, read, state(client, subscription)


def interrupt_changes(data):
    """Leave the state of a process that died during a switch of `c`, and during a repartitioning of `d`."""
    with (
        prepare_startup(Config(data=data)) as directory,
        closing(build_infrastructure(Config(data=data), directory)) as base,
    ):
        store = base.adapters.stores.of("default")
        base.bus.transact(StartSwitch(event_type="c", storage_id="default", can_be_used=True), base.system_context())
        base.registry.refresh()
        following = base.registry.timelines("c").switch.timeline
        store.create_topic(following.topic, following.partitions)
        base.bus.transact(CloseTimeline(event_type="c", timeline=following), base.system_context())
        store.close_topic(base.registry.timelines("c").active.topic)
        store.extend_topic(base.registry.timelines("d").active.topic, 3)


def publish_again(client):
    """Publish, on every call, the same batch under one key and the same event under one eid."""
    same = [event("1", metadata={"eid": "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11"})]
    for name, headers in (("c", {"Idempotency-Key": "mine"}), ("d", {})):
        response = client.post(f"/event-types/{name}/events", json=same, headers=headers)
        assert response.status_code == 200, response.text


def state(client, subscription):
    """The state that clients see."""
    paths = (
        "/event-types",
        "/event-types/a/timelines",
        "/event-types/a/partitions",
        "/event-types/b/partitions",
        "/event-types/c/partitions",
        "/event-types/d/partitions",
        f"/subscriptions/{subscription}",
        f"/subscriptions/{subscription}/cursors",
    )
    found = {path: client.get(path).json() for path in paths}
    for cursor in found[f"/subscriptions/{subscription}/cursors"]["items"]:
        del cursor["cursor_token"]
    return found


def interrupting(phase):
    """A progress callback that raises as soon as a phase begins."""

    def progress(name, _done, _total):
        if name == phase:
            raise Interrupted

    return progress


def while_no_node_starts(cluster, folder):
    """A progress callback that checks at the end that no node can start before the migration is complete."""
    early = Config(data=folder, database_lock_timeout_s=1, **cluster)

    def progress(name, _done, _total):
        if name == "subscriptions":
            with pytest.raises(Unavailable, match="in use by rioni migrate"), prepare_startup(early):
                pass

    return progress


def no_progress(_phase, _done, _total):
    pass


def test_a_broker_is_migrated_to_a_cluster_with_everything(cluster, data, node, tmp_path):
    subscription, read, before = history(data)
    target = Config(**cluster)
    for phase in ("entries of the log", "events copied", "events compared", "names", "subscriptions"):
        with pytest.raises(Interrupted):
            migrate(data, target, interrupting(phase))
    report = migrate(data, target, while_no_node_starts(cluster, tmp_path / "early"))
    assert report.events == 28
    assert report.subscriptions == 1
    with pytest.raises(Conflict, match="already migrated"):
        migrate(data, target, no_progress)
    assert "was migrated to the cluster with Kafka at" in refused_start(data)
    with node() as server, server.client() as client:
        publish_again(client)
        assert state(client, subscription) == before
        publish_orders(client, "a", "last")
        order_ids = read + consume(server, subscription, 26 - len(read))
        assert sorted(order_ids) == sorted([*map(str, range(25)), "last"])
        (storage,) = client.get("/storages").json()
        assert (storage["id"], storage["storage_type"]) == ("default", "kafka")


def test_unfinished_changes_are_completed_in_the_cluster(cluster, data, node):
    history(data)
    interrupt_changes(data)
    assert migrate(data, Config(**cluster), no_progress).events == 28
    with node() as server, server.client() as client:
        wait_until(lambda: len(client.get("/event-types/c/timelines").json()) == 2)
        for name in ("c", "d"):
            publish_orders(client, name, "last")
        (partition,) = client.get("/event-types/c/partitions").json()
        assert partition["newest_available_offset"] == "001-0002-000000000000000000"


def test_after_an_incomplete_migration_the_old_broker_may_continue(cluster, data, node, tmp_path):
    subscription, read, _ = history(data)
    target, early = Config(**cluster), Config(data=tmp_path / "early", **cluster)
    with pytest.raises(Interrupted):
        migrate(data, target, interrupting("subscriptions"))
    with pytest.raises(Unavailable, match="run it again if it was interrupted"), prepare_startup(early):
        pass
    with running_server(data, "--workers", "1") as server, server.client() as client:
        publish_orders(client, "a", "meanwhile")
        read += consume(server, subscription, 5)
        before = state(client, subscription)
    reached = {}
    assert migrate(data, target, lambda name, done, total: reached.update({name: (done, total)})).events == 29
    assert all(done == total for done, total in reached.values())
    with node() as server, server.client() as client:
        assert state(client, subscription) == before
        assert sorted(read + consume(server, subscription, 26 - len(read))) == sorted(
            [*map(str, range(25)), "meanwhile"]
        )


def test_interrupted_at_its_last_steps_the_old_broker_does_not_start_and_a_further_run_completes(
    cluster, data, node, monkeypatch
):
    subscription, _, before = history(data)
    target = Config(**cluster)
    # Before the cluster's last entry, and when it is written, but the mark does not say so yet.
    for name in ("MoveStorage", "write_mark"):
        with monkeypatch.context() as patched:
            patched.setattr(migration, name, lambda *_args, **_kwargs: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                migrate(data, target, no_progress)
        assert "Run `rioni migrate` again to complete it" in refused_start(data)
    report = migrate(data, target, no_progress)
    assert (report.events, report.subscriptions) == (28, 1)
    assert "was migrated to the cluster" in refused_start(data)
    with node() as server, server.client() as client:
        assert state(client, subscription) == before


def test_an_interrupted_migration_begins_anew_if_the_cluster_was_set_up_anew(cluster, data, postgres_url, monkeypatch):
    history(data)
    with monkeypatch.context() as patched:
        patched.setattr(migration, "MoveStorage", lambda **_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            migrate(data, Config(**cluster), no_progress)
    other = cluster | {"database": postgres_url(), "zookeeper": f"{cluster['zookeeper']}-anew"}
    reached = set()
    assert migrate(data, Config(**other), lambda name, *_: reached.add(name)).events == 28
    assert "entries of the log" in reached


def test_settings_without_a_cluster_or_data_are_rejected(cluster, data):
    with pytest.raises(Unavailable, match="do not describe a cluster"):
        migrate(data, Config(), no_progress)
    with pytest.raises(Unavailable, match="There is no data"):
        migrate(data, Config(**cluster), no_progress)


def test_an_unavailable_kafka_is_reported_before_anything_is_copied(cluster, data):
    with prepare_startup(Config(data=data)) as directory:
        build_infrastructure(Config(data=data), directory).close()
    with pytest.raises(Unavailable, match="No Kafka broker responds"):
        migrate(data, Config(**cluster | {"kafka": "127.0.0.1:1"}), no_progress)
