import contextlib
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rioni.client import ConnectionFailed, NotFound, Subscription, Unauthorized, Unavailable
from rioni.testing import Broker, BrokerError
from tests.support.certificates import authority
from tests.support.server import Stream, runs
from tests.support.tokens import write_tokens
from tests.support.waiting import WAIT_S, wait_until


RETENTION_MS = 3 * 3_600_000
"""The shortest that event types may have."""


def test_a_broker_serves_the_api_and_leaves_nothing_behind():
    with Broker() as broker:
        client = broker.client()
        assert client.event_types.list() == []
        assert "Rioni serves http://127.0.0.1:" in broker.log()
        folder = broker._folder
        assert (folder / "data/registry.db").exists()
        with broker.client(attempts=1) as other:
            url = other.url
    assert not folder.exists()
    with pytest.raises(BrokerError, match=r"use `with Broker\(\)"):
        _ = broker.url
    with Broker.at(url).client(attempts=1) as gone, pytest.raises(ConnectionFailed):
        gone.event_types.list()


def test_a_broker_can_be_started_again_and_is_empty_then():
    own = Broker()
    own.start()
    own.start()
    own.create_event_type("order.created")
    first = own._folder
    own.stop()
    own.stop()
    with own:
        assert own._folder != first
        assert own.client().event_types.list() == []


def test_settings_are_those_of_serve_and_neither_environment_nor_files_count(monkeypatch, tmp_path: Path):
    (tmp_path / "rioni.toml").write_text("port = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIONI_PORT", "2")
    with Broker({"owning_applications": "shop", "partitions_max": 3}) as broker:
        broker.create_event_type("order.created", owning_application="shop", partitions=3)
        assert len(broker.client().partitions.list("order.created")) == 3


def test_a_setting_that_does_not_exist_is_named():
    with pytest.raises(BrokerError, match="settings: partition_max is not a setting; did you mean partitions_max"):
        Broker({"partition_max": 3}).start()


def test_there_is_one_worker_which_knows_the_faults():
    with pytest.raises(BrokerError, match="has one worker"):
        Broker({"workers": 2}).start()


def test_a_port_that_is_taken_is_named(shared_broker: Broker):
    port = int(shared_broker.url.rpartition(":")[2])
    with pytest.raises(BrokerError, match=f"{port} is in use"):
        Broker({"port": port}).start()


def test_events_expire_when_the_time_is_moved():
    with Broker() as own:
        own.create_event_type("order.created", options={"retention_time": RETENTION_MS})
        own.publish("order.created", {"order": 1})
        assert own.advance(hours=2.9) - datetime.now(UTC) > timedelta(hours=2.8)
        assert len(own.published("order.created")) == 1
        own.advance(timedelta(hours=1))
        assert own.published("order.created") == []
        own.publish("order.created", {"order": 2})
        assert [event["order"] for event in own.published("order.created")] == [2]


def test_streams_that_commit_nothing_end_when_their_time_is_over():
    with Broker() as own:
        own.create_event_type("order.created")
        client = own.client()
        subscription = client.subscriptions.create(
            Subscription(owning_application="shop", event_types=["order.created"], read_from="begin")
        )
        own.publish("order.created", {"order": 1})
        path = {"id": subscription.id}
        with client._transport.stream("GET", "/subscriptions/{id}/events", path=path) as response:
            stream = Stream(response)
            assert stream.filled_batch()["events"][0]["order"] == 1
            own.advance(minutes=2)
            assert "Commit timeout" in stream.batches()[-1]["info"]["debug"]


def test_with_tls_and_tokens_that_expire_when_the_time_is_moved(tmp_path: Path):
    certificate, key = authority().issue(tmp_path)
    tokens = tmp_path / "tokens.toml"
    write_tokens(tokens, {"admin-token": {"uid": "admin"}, "shop-token": {"uid": "shop"}})
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    tokens.write_text(f"{tokens.read_text()}\nexpires = {tomorrow.isoformat(timespec='seconds')}\n")
    settings = {
        "auth_mode": "basic",
        "auth_tokens": tokens,
        "default_admin": "service:admin",
        "tls_certificate": certificate,
        "tls_key": key,
    }
    with Broker(settings, token="admin-token", ca_certificate=authority().write(tmp_path)) as broker:
        assert broker.url.startswith("https://")
        client = broker.client(token="shop-token")
        with broker.isolated():
            assert client.event_types.list() == []
            broker.advance(days=2)
            with pytest.raises(Unauthorized):
                client.event_types.list()


def test_time_does_not_go_back(shared_broker: Broker):
    with pytest.raises(ValueError, match="ahead"):
        shared_broker.advance(hours=-1)


def test_the_next_requests_fail_as_often_as_they_should(broker: Broker):
    broker.create_event_type("order.created")
    client = broker.client(attempts=1)
    broker.fail_next(503, count=2, retry_after_s=7, path="/event-types/*/events")
    client.event_types.list()
    for _ in range(2):
        with pytest.raises(Unavailable, match="A test has asked") as failed:
            client.publish("order.created", [{"order": 1}])
        assert failed.value.retry_after_s == 7
    client.publish("order.created", [{"order": 2}])
    assert [event["order"] for event in broker.published("order.created")] == [2]


def test_the_client_retries_what_failed(broker: Broker):
    broker.create_event_type("order.created")
    broker.fail_next(503, retry_after_s=0)
    broker.drop_next(method="POST")
    broker.drop_next(method="POST", processed=True)
    broker.client().publish("order.created", [{"order": 1}])
    broker.expect("order.created", {"order": 1}, count=1)
    assert broker.clear_faults() == 0


def test_an_answer_can_be_late(broker: Broker):
    broker.delay_next(0.2, path="/event-types")
    with broker.client(timeout_s=0.1, attempts=1) as client, pytest.raises(ConnectionFailed):
        client.event_types.list()


def test_open_connections_can_be_cut_streams_as_well(broker: Broker):
    broker.create_event_type("order.created")
    stream = broker.client().events("order.created", batch_flush_timeout=1)
    ended: list[BaseException] = []

    def consume():
        try:
            for _ in stream:
                consumes.set()
        except ConnectionFailed as ex:
            ended.append(ex)

    consumes = threading.Event()
    thread = threading.Thread(target=consume)
    thread.start()
    assert consumes.wait(WAIT_S)
    assert broker.drop_connections() >= 1
    thread.join(WAIT_S)
    assert ended


def test_a_status_that_is_no_error_is_refused(shared_broker: Broker):
    with pytest.raises(BrokerError, match="200 is not"):
        shared_broker.fail_next(200)


def test_a_broker_started_elsewhere_has_no_faults(shared_broker: Broker):
    with Broker.at(shared_broker.url) as elsewhere:
        with pytest.raises(BrokerError, match="started elsewhere"):
            elsewhere.fail_next(503)
        with pytest.raises(BrokerError, match="started elsewhere"):
            elsewhere.advance(hours=1)


def test_a_subscription_that_is_behind_fails_the_test(broker: Broker):
    broker.create_event_type("order.created")
    client = broker.client()
    subscription = client.subscriptions.create(
        Subscription(owning_application="shop", event_types=["order.created"], read_from="begin")
    )
    broker.publish("order.created", {"order": 1}, {"order": 2})
    with client._transport.stream(
        "GET", "/subscriptions/{id}/events", path={"id": subscription.id}, params={"batch_flush_timeout": 1}
    ) as response:
        Stream(response).line()
        with pytest.raises(AssertionError, match=r"left are 2 of order\.created:0"):
            broker.expect_consumed(subscription.id, within_s=0)
    with pytest.raises(NotFound):
        broker.expect_consumed("00000000-0000-0000-0000-000000000000", within_s=0)


def test_a_killed_test_process_takes_its_brokers_along(tmp_path: Path):
    program = "from rioni.testing import Broker; b = Broker(); b.start(); print(b._folder, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        folder = Path(process.stdout.readline().strip())
        pids = _using(folder)
        assert len(pids) == 2
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(map(runs, pids)))
    wait_until(lambda: not folder.exists())


def _using(folder: Path) -> list[int]:
    """The processes that work in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):  # those of others, and those that have ended
            if path.readlink() == folder:
                found.append(int(path.parent.name))
    return found
