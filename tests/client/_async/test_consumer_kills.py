"""Consumers and brokers are killed at random: nothing is lost, order is kept, nothing is repeated after a commit."""

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rioni.cli.cluster.servers import free_ports
from rioni.client import Client, ClientError, Cursor, EventType, Schema, Statistic, Subscription
from tests.support.campaigns import length
from tests.support.server import running_server
from tests.support.tokens import ADMINISTRATOR, FULL_SCOPES, write_tokens
from tests.support.waiting import wait_until


pytestmark = [pytest.mark.nightly, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
PARTITIONS = 4
DURATION_S = length(6, 300)
EVENT_TYPE = "killed.order"


class Consumers:
    """Processes that consume, and what they have written."""

    def __init__(self, subscription_id, urls, environment):
        self.command = [sys.executable, "-m", "tests.support.client_consumer", subscription_id, *urls]
        self.environment = {**os.environ, **environment}
        self.lines, self.processes, self.threads = [], [], []

    def start(self):
        process = subprocess.Popen(self.command, cwd=ROOT, stdout=subprocess.PIPE, env=self.environment)
        thread = threading.Thread(target=self.read, args=[process])
        thread.start()
        self.processes.append(process)
        self.threads.append(thread)

    def read(self, process):
        with process.stdout:
            self.lines.extend(process.stdout)

    def kill(self, chosen=None):
        process = chosen or random.choice(self.processes)
        process.kill()
        process.wait()
        self.processes.remove(process)

    def end(self):
        for process in list(self.processes):
            self.kill(process)
        for thread in self.threads:
            thread.join()

    def records(self):
        return sorted((json.loads(line) for line in self.lines), key=lambda record: record[1])

    def handled(self):
        return {record[3] for record in self.records() if record[0] == "handled"}


def publish(client, numbers):
    """Publish one batch, again and again until it is stored; its key has it stored once."""
    first = numbers[0]
    events = [{"number": n, "metadata": metadata(n)} for n in numbers]

    def published():
        with contextlib.suppress(ClientError):
            client.publish(EVENT_TYPE, events, idempotency_key=f"batch-{first}")
            return True
        return False

    wait_until(published)


def metadata(number):
    return {
        "eid": f"00000000-0000-4000-8000-{number:012d}",
        "occurred_at": "2026-01-01T00:00:00Z",
        "partition": str(number % PARTITIONS),
    }


def prepare(client):
    statistic = Statistic(
        messages_per_minute=1, message_size=1, read_parallelism=PARTITIONS, write_parallelism=PARTITIONS
    )
    client.event_types.create(
        EventType(
            name=EVENT_TYPE,
            owning_application="shop",
            schema=Schema.json({}),
            partition_strategy="user_defined",
            default_statistic=statistic,
        )
    )
    wanted = Subscription(owning_application="shop", event_types=[EVENT_TYPE], read_from="begin")
    return client.subscriptions.create(wanted).id


def campaign(client, subscription_id, urls, kill_broker, environment=None, meanwhile=lambda: None):
    """Publish, and kill; then wait until everything was handled, and check what was written."""
    consumers, published = Consumers(subscription_id, urls, environment or {}), 0
    consumers.start()
    consumers.start()
    until_s = time.monotonic() + DURATION_S
    try:
        while time.monotonic() < until_s:
            publish(client, range(published, published + 40))
            published += 40
            meanwhile()
            if random.random() < 0.15:
                consumers.kill()
                consumers.start()
            if random.random() < 0.1:
                kill_broker()
            time.sleep(random.uniform(0, 0.2))
        # At least one of each, however short the campaign is.
        kill_broker()
        consumers.kill()
        consumers.start()
        publish(client, range(published, published + 40))
        published += 40
        wait_until(lambda: len(consumers.handled()) == published)
    finally:
        consumers.end()
    check(consumers.records(), offsets(client), published)


def offsets(client):
    """The offset of each event, by partition and number."""
    begin = [Cursor(partition=str(n), offset="BEGIN") for n in range(PARTITIONS)]
    found = {}
    stream = client.events(EVENT_TYPE, cursors=begin, batch_limit=1, batch_flush_timeout=1, stream_keep_alive_limit=1)
    for batch in stream:
        for event in batch.events:
            found[batch.cursor.partition, json.loads(bytes(event))["number"]] = batch.cursor.offset
    return found


def check(records, offset_of, published):
    assert len(offset_of) == published
    committed, first_times = {}, {}
    for kind, _, partition, value in records:
        if kind == "committed":
            committed[partition] = max(committed.get(partition, ""), value)
            continue
        offset = offset_of[partition, value]
        assert offset > committed.get(partition, ""), f"event {value} was handled again behind an acknowledged commit"
        first_times.setdefault(partition, {}).setdefault(value, len(first_times.get(partition, {})))
    for partition, order in first_times.items():
        assert list(order) == sorted(order), f"partition {partition} was handled out of order"
    assert sum(map(len, first_times.values())) == published


class Tokens:
    """Tokens of consumers that expire one after the other; that of the test itself lasts."""

    def __init__(self, folder):
        self.list, self.current, self.number = folder / "tokens.toml", folder / "token", 0
        self.renew()

    def renew(self):
        self.number += 1
        scopes = {"scopes": list(FULL_SCOPES)}
        known = {"lasting": {"uid": "stups_nakadi", **scopes}, f"brief-{self.number}": {"uid": "shop", **scopes}}
        write_tokens(self.list.with_suffix(".new"), known)
        self.list.with_suffix(".new").replace(self.list)
        self.current.with_suffix(".new").write_text(f"brief-{self.number}")
        self.current.with_suffix(".new").replace(self.current)

    def renew_sometimes(self):
        if self.number == 1 or random.random() < 0.1:
            self.renew()


def test_one_server_with_tokens_that_expire(tmp_path):
    """The server is killed with all its workers, and started on the same data."""
    (port,) = free_ports(1)
    tokens = Tokens(tmp_path)
    environment = {"RIONI_AUTH_MODE": "basic", **ADMINISTRATOR, "RIONI_AUTH_TOKENS": str(tokens.list)}
    with contextlib.ExitStack() as stack:

        def start():
            options = ("--workers", "1", "--port", str(port))
            return stack.enter_context(running_server(tmp_path / "data", *options, environment=environment))

        running = [start()]

        def kill():
            running[0].kill()
            running[0] = start()

        with Client(running[0].url, token="lasting", attempts=2) as client:
            consumers = {"TOKEN_FILE": str(tokens.current)}
            campaign(client, prepare(client), [running[0].url], kill, consumers, tokens.renew_sometimes)
        assert tokens.number > 1


@pytest.mark.kafka
@pytest.mark.zookeeper
@pytest.mark.postgres
def test_two_nodes_of_a_cluster(tmp_path, cluster_environment):
    """One node at a time is killed, and the consumers go to the other; partitions move between the nodes."""
    ports = free_ports(2)
    environment = cluster_environment() | {"RIONI_ZOOKEEPER_SESSION_TIMEOUT_S": "2"}
    with contextlib.ExitStack() as stack:

        def start(number):
            options = ("--workers", "1", "--port", str(ports[number]))
            return stack.enter_context(running_server(tmp_path / f"node-{number}", *options, environment=environment))

        nodes = [start(0), start(1)]

        def kill():
            number = random.randrange(2)
            nodes[number].kill()
            nodes[number] = start(number)

        urls = [node.url for node in nodes]
        with Client(urls[0], attempts=2) as client:
            campaign(client, prepare(client), urls, kill)
