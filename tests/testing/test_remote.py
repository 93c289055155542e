"""The broker for tests in other languages: a process, and commands for it."""

import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rioni.client import Subscription, Unavailable
from rioni.testing import Broker, BrokerError, remote
from rioni.testing.__main__ import app
from tests.support.waiting import WAIT_S


PAGE = (Path(__file__).parents[2] / "docs/testing.md").read_text()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Broker, str]]:
    """A broker in a separate process, and its port."""
    command = [sys.executable, "-m", "rioni.testing", "serve", "--port", "0", "--set", "owning_applications=shop"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = re.search(r"http://\S+", process.stderr.readline())[0]
            port = url.rpartition(":")[2]
            path = remote.socket_path(int(port))
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with Broker.at(url) as broker:
                yield broker, port
        finally:
            process.terminate()
        assert process.wait(WAIT_S) == 0
        assert not path.exists()


def run(served: tuple[Broker, str], *command: str) -> str:
    done = CliRunner().invoke(app, [*command, "--port", served[1]], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output.strip()


def test_faults_are_asked_for_and_forgotten(served):
    client = served[0].client(attempts=1)
    run(served, "fail-next", "503", "--count", "2", "--path", "/event-types", "--retry-after", "3")
    with pytest.raises(Unavailable) as failed:
        client.event_types.list()
    assert failed.value.retry_after_s == 3
    run(served, "delay-next", "60", "--method", "POST")
    run(served, "drop-next", "--processed")
    assert run(served, "clear-faults") == "3"
    client.event_types.list()
    assert int(run(served, "drop-connections")) >= 1


def test_a_reset_deletes_what_was_created(served):
    for _ in range(2):
        served[0].create_event_type("order.created", owning_application="shop")
        run(served, "reset")
    assert served[0].client().event_types.list() == []


def test_the_commands_of_the_documentation_work(served):
    commands = re.findall(r"^docker exec CONTAINER rioni-testing (.*)$", PAGE, re.MULTILINE)
    assert len(commands) == len(remote.COMMANDS) + 1
    for command in commands:
        run(served, *shlex.split(command))


def test_time_is_moved(served):
    first = run(served, "advance", "--minutes", "1")
    assert run(served, "advance", "--hours", "24") > first


def test_what_can_not_be_done_is_an_error(served):
    path = remote.socket_path(int(served[1]))
    with pytest.raises(BrokerError, match="200 is not the HTTP status of an error"):
        remote.call(path, "fail_next", status=200)
    with pytest.raises(BrokerError, match="'stop' is not one of fail_next"):
        remote.call(path, "stop")
    with pytest.raises(BrokerError, match="years"):
        remote.call(path, "advance", years=3)


def test_where_no_broker_runs_the_socket_is_named(tmp_path: Path):
    with pytest.raises(BrokerError, match=rf"No broker for tests is controlled at {tmp_path}/none"):
        remote.call(tmp_path / "none", "reset")


@pytest.fixture(params=["started here", "started elsewhere"])
def kept(request, launched, served) -> Iterator[Broker]:
    """A broker of each kind with an event type, events and a subscription from before the test."""
    with Broker() if request.param == "started here" else Broker.at(served[0].url) as outside, outside.isolated():
        outside.create_event_type("order.created", partitions=2, owning_application="shop")
        outside.create_event_type("order.paid", owning_application="shop")
        for name in ("order.created", "order.paid"):
            outside.publish(name, *({"order": number} for number in range(10)))
        yield outside


def test_events_from_before_a_test_count_for_no_assertion(kept):
    wanted = Subscription(owning_application="shop", event_types=["order.created"], read_from="begin")
    subscription = kept.client().subscriptions.create(wanted)
    with kept.isolated() as broker:
        assert broker.published("order.created") == []
        broker.expect("order.created", count=0, within_s=0.1)
        with pytest.raises(AssertionError, match=r"0 came\. Nothing else was published to it"):
            broker.expect("order.created", {"order": 1}, within_s=0.1)
        broker.expect_consumed(str(subscription.id), within_s=0.1)
        broker.publish("order.created", {"order": 10})
        assert [event["order"] for event in broker.expect("order.created", count=1)] == [10]
        with pytest.raises(AssertionError, match="has not committed everything"):
            broker.expect_consumed(str(subscription.id), within_s=0.1)
    assert len(kept.published("order.created")) == 11


def test_all_events_count_of_an_event_type_that_was_created_anew(kept):
    with kept.isolated() as broker:
        broker.client().event_types.delete("order.paid")
        broker.create_event_type("order.paid", owning_application="shop")
        broker.publish("order.paid", {"order": 20})
        assert [event["order"] for event in broker.published("order.paid")] == [20]


def test_the_fixture_of_a_broker_that_was_started_elsewhere_begins_without_events(served, tmp_path):
    with served[0].isolated() as outside:
        outside.create_event_type("order.created", owning_application="shop")
        outside.publish("order.created", {"order": 1})
        (tmp_path / "test_own.py").write_text(
            "def test_own(rioni):\n"
            "    assert rioni.published('order.created') == []\n"
            "    rioni.expect('order.created', count=0, within_s=0.1)\n"
        )
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rioni-url", outside.url]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert "1 passed" in done.stdout, done.stdout + done.stderr
