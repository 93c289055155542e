"""Clients that publish and consume while faults happen, and record what they observe for the history checker."""

import contextlib
import itertools
import json
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.support import consumer
from tests.support.campaigns import length
from tests.support.history_checker import Commit, Delivery, History, Stream


BATCH = 3
PUBLISH_EVERY_S = length(0.06, 0.02)
REQUEST_TIMEOUT_S = 10
REGISTRAR = "registrar"
UNHEARD = ("Session ended", "ZooKeeper")
"""How the reasons begin that a node gives when it can't reach the coordinator."""
NO_ANSWER = (httpx.HTTPError, OSError)


class Consumers:
    """The consumers, each a process that writes a file."""

    def __init__(self, urls: Sequence[str], subscription_id: str, folder: Path) -> None:
        self._addresses = [urlsplit(url).netloc for url in urls]
        self._command = [sys.executable, consumer.__file__, subscription_id]
        self._folder = folder
        self._processes: list[subprocess.Popen] = []
        self.files: list[Path] = []

    def start(self) -> None:
        self.files.append(self._folder / f"consumer-{len(self.files)}.jsonl")
        with self.files[-1].open("w") as file:
            self._addresses.append(self._addresses.pop(0))
            self._processes.append(subprocess.Popen([*self._command, *self._addresses], stdout=file))

    def kill(self, chance: random.Random) -> None:
        """Kill one, and start another one in its place."""
        process = self._processes.pop(chance.randrange(len(self._processes)))
        process.kill()
        process.wait()
        self.start()

    def pause(self, chance: random.Random) -> None:
        """Suspend one for a while, maybe for longer than its commit timeout."""
        process = chance.choice(self._processes)
        process.send_signal(signal.SIGSTOP)
        time.sleep(chance.uniform(0.2, 3))
        process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


class Publisher(threading.Thread):
    """Publishes numbered events to one partition, one request at a time, to each node in turn.

    Events without a response, or with an unknown outcome, may be stored or not.
    """

    def __init__(self, urls: Sequence[str], name: str, partition: str, stop: threading.Event) -> None:
        super().__init__()
        self.name, self.partition = name, partition
        self._urls, self._stop_told, self._numbers = itertools.cycle(urls), stop, itertools.count()
        self.acknowledged: list[int] = []
        self.refused: list[int] = []
        """The numbers of events that the response reports as not stored."""

    def run(self) -> None:
        with httpx.Client(timeout=REQUEST_TIMEOUT_S, verify=False) as client:
            while not self._stop_told.wait(PUBLISH_EVERY_S):
                with contextlib.suppress(*NO_ANSWER):
                    self.publish(client, next(self._urls))

    def publish(self, client: httpx.Client, url: str) -> None:
        """Publish the next events to a node, and record the result of each."""
        numbers = [next(self._numbers) for _ in range(BATCH)]
        response = client.post(f"{url}/event-types/{self.name}/events", json=[self._event(each) for each in numbers])
        if response.status_code == httpx.codes.OK:
            self.acknowledged += numbers
        elif response.status_code in {httpx.codes.MULTI_STATUS, httpx.codes.UNPROCESSABLE_ENTITY}:
            for number, item in zip(numbers, response.json(), strict=True):
                kept = {"submitted": self.acknowledged, "aborted": self.refused}.get(item["publishing_status"])
                if kept is not None:
                    kept.append(number)

    def _event(self, number: int) -> dict:
        metadata = {"eid": str(uuid.uuid4()), "occurred_at": "2026-11-20T10:00:00Z", "partition": self.partition}
        return {"number": number, "metadata": metadata}


class Registrar(threading.Thread):
    """Creates one subscription after the other, on each node in turn, and looks each one up on another node.

    Half of the requests that were not answered are repeated, as clients do.
    """

    def __init__(self, urls: Sequence[str], event_type: str, stop: threading.Event) -> None:
        super().__init__()
        self._urls, self._event_type, self._stop_told = urls, event_type, stop
        self._next, self._numbers = itertools.cycle(urls), itertools.count()
        self.registered: list[str] = []
        """The ids of confirmed subscriptions."""
        self.unseen: list[tuple[str, str]] = []
        """Confirmed subscriptions that a node did not find: the id and the node."""

    def run(self) -> None:
        with httpx.Client(timeout=REQUEST_TIMEOUT_S, verify=False) as client:
            while not self._stop_told.wait(0.1):
                number = next(self._numbers)
                if not self._registered(client, number) and number % 2:
                    self._registered(client, number)

    def _registered(self, client: httpx.Client, number: int) -> bool:
        with contextlib.suppress(*NO_ANSWER):
            return self.register(client, number)
        return False

    def register(self, client: httpx.Client, number: int) -> bool:
        """Create a subscription, and look it up on another node; return whether the creation was confirmed."""
        body = {"owning_application": REGISTRAR, "event_types": [self._event_type], "consumer_group": str(number)}
        response = client.post(f"{next(self._next)}/subscriptions", json=body)
        if response.status_code not in {httpx.codes.OK, httpx.codes.CREATED}:
            return False
        name = response.json()["id"]
        self.registered.append(name)
        url = next(self._next)
        if client.get(f"{url}/subscriptions/{name}").status_code == httpx.codes.NOT_FOUND:
            self.unseen.append((name, url))
        return True

    def lists(self, client: httpx.Client) -> dict[str, list[tuple[str, str]]]:
        """The subscriptions that each node lists: the consumer group and the id of each."""
        found = {}
        for url in self._urls:
            items, path = [], f"/subscriptions?owning_application={REGISTRAR}&limit=1000"
            while path:
                page = client.get(url + path).json()
                items += [(each["consumer_group"], each["id"]) for each in page["items"]]
                path = page["_links"].get("next", {}).get("href", "")
            found[url] = sorted(items)
        return found


def position_of(offset: str) -> int:
    return int(offset.split("-", 2)[2])


def read(files: list[Path], kills: list[tuple[float, float]], history: History) -> None:
    """Read what the consumers have recorded; the last line of a killed one may be incomplete."""
    for file in files:
        commits: dict[tuple[str, str, str], float] = {}
        streams: dict[str, Stream] = {}
        for line in file.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                break
            kind, at, name, *more = json.loads(line)
            stream = streams.setdefault(name, Stream(opened=at))
            match kind, more:
                case "opened", [begun]:
                    stream.opened, stream.answered = begun, at
                case "got", [partition, offset, numbers]:
                    delivery = Delivery(at=at, partition=partition, position=position_of(offset), numbers=numbers)
                    stream.deliveries.append(delivery)
                case "commits", [partition, offset]:
                    commits[name, partition, offset] = at
                case "committed", [partition, offset, begun, status]:
                    commits.pop((name, partition, offset), None)
                    # A response that reports a failure may also leave the outcome of a commit unknown.
                    known = status if status < httpx.codes.INTERNAL_SERVER_ERROR else 0
                    commit = Commit(
                        begun=begun, ended=at, partition=partition, position=position_of(offset), status=known
                    )
                    stream.commits.append(commit)
                case "ended", [reason]:
                    stream.ended, stream.reason, stream.unheard = at, reason, reason.startswith(UNHEARD)
                    stream.excused = any(begun <= at and ended >= stream.opened for begun, ended in kills)
        for (name, partition, offset), at in commits.items():
            # The consumer was killed while it waited for the answer.
            position = position_of(offset)
            unknown = Commit(begun=at, ended=float("inf"), partition=partition, position=position, status=0)
            streams[name].commits.append(unknown)
        history.streams |= streams
