"""How long a cluster is without what a node did: its restart, and the takeover of its partitions, in one run.

`python -m benchmarks.cluster` starts a Kafka, a ZooKeeper, a PostgreSQL and two nodes, which share the machine. Each
node has one stream of a subscription. One of them is killed, `--rounds` times: how long until the other one's stream
has all partitions, and, once it is started again, how long until `/readyz` says that it serves.
"""

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any

from rioni.cli.cluster.cluster import node, running_cluster
from rioni.cli.cluster.servers import HOST, Server, free_ports


NAME, PARTITIONS = "benchmark.cluster", 8
ROUNDS = 5
SESSION_TIMEOUT_S = 10
READY_S, GRACE_S = 3.0, 1.0
"""The aims, in seconds: from a start to ready, and from the end of the session to the takeover."""
ENOUGH_S = 60.0
LOOK_EVERY_S = 0.02
STATISTIC = {
    "messages_per_minute": 1,
    "message_size": 1,
    "read_parallelism": PARTITIONS,
    "write_parallelism": PARTITIONS,
}


class Consumer:
    """Opens a stream at a node, and another one whenever it ends."""

    def __init__(self, url: str, subscription_id: str) -> None:
        self._path = f"{url}/subscriptions/{subscription_id}/events?batch_flush_timeout=1"
        self._over = threading.Event()
        threading.Thread(target=self._consume, daemon=True).start()

    def close(self) -> None:
        """Open no further stream."""
        self._over.set()

    def _consume(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            with contextlib.suppress(OSError, HTTPException), urllib.request.urlopen(self._path) as stream:
                while not self._over.is_set() and stream.readline():
                    pass


@contextlib.contextmanager
def two_nodes(environment: Mapping[str, str]) -> Iterator[dict[str, Server]]:
    """Two nodes by their URLs, given what they share and other settings; they end with the block."""
    with tempfile.TemporaryDirectory(prefix="rioni-nodes-") as folder, contextlib.ExitStack() as stack:
        nodes = {}
        for number, port in enumerate(free_ports(2), 1):
            each = node(Path(folder) / f"node-{number}", number, port, environment)
            nodes[f"http://{HOST}:{port}"] = each
            stack.callback(each.kill)
            each.start()
            each.wait()
        yield nodes


def measure(rounds: int, session_timeout_s: int) -> tuple[list[float], list[float]]:
    """The seconds of each takeover, and of each start until it is ready."""
    takeovers, starts = [], []
    setting = {"RIONI_ZOOKEEPER_SESSION_TIMEOUT_S": str(session_timeout_s)}
    with (
        running_cluster(zookeepers=1, progress=lambda text: print(text, file=sys.stderr)) as servers,
        two_nodes(servers.environment | setting) as nodes,
        contextlib.ExitStack() as stack,
    ):
        (survivor, _), (_, victim) = nodes.items()
        statistic = {"name": NAME, "owning_application": "benchmark", "category": "undefined"}
        schema = {"type": "json_schema", "schema": "{}"}
        _ask(f"{survivor}/event-types", statistic | {"schema": schema, "default_statistic": STATISTIC})
        wanted = {"owning_application": "benchmark", "event_types": [NAME]}
        subscription_id = _ask(f"{survivor}/subscriptions", wanted)["id"]
        for url in nodes:
            stack.enter_context(contextlib.closing(Consumer(url, subscription_id)))

        def shares() -> list[int]:
            (item,) = _ask(f"{survivor}/subscriptions/{subscription_id}/stats")["items"]
            owners = [each["stream_id"] for each in item["partitions"] if each["stream_id"]]
            return sorted(owners.count(each) for each in set(owners))

        for _ in range(rounds):
            _seconds_until(lambda: shares() == [PARTITIONS // 2] * 2)
            victim.kill()
            takeovers.append(_seconds_until(lambda: shares() == [PARTITIONS]))
            begun = time.monotonic()
            victim.start()
            victim.wait()
            starts.append(time.monotonic() - begun)
    return takeovers, starts


def _ask(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=ENOUGH_S) as response:
        answer = response.read()
    return json.loads(answer) if answer else None


def _seconds_until(condition: Callable[[], bool]) -> float:
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > ENOUGH_S:
            raise TimeoutError("it did not happen")
        time.sleep(LOOK_EVERY_S)
    return time.monotonic() - begun


def _report(name: str, seconds: list[float], aim_s: float) -> None:
    print(f"{name:<36} median {statistics.median(seconds):5.2f} s  worst {max(seconds):5.2f} s  aim {aim_s:5.2f} s")


def main() -> None:
    """Measure, and print both figures beside what is aimed at."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--session-timeout", type=int, default=SESSION_TIMEOUT_S, metavar="SECONDS")
    arguments = parser.parse_args()
    takeovers, starts = measure(arguments.rounds, arguments.session_timeout)
    _report("restart of a node until ready", starts, READY_S)
    _report("takeover of a dead node's partitions", takeovers, arguments.session_timeout + GRACE_S)


if __name__ == "__main__":
    main()
