"""Clients with nothing but their defaults, which go on publishing and consuming while what they need is away."""

import contextlib
import itertools
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import httpx

from rioni.client import Client, ClientError, Delivery, Event, EventType, Schema, Subscription, metadata
from tests.support.server import count_events
from tests.support.waiting import WAIT_S, wait_until


EVERY_S = 0.05
"""Between two events of a publisher."""
RAW_EVERY_S = 0.1
RAW_TIMEOUT_S = 5.0
KEYS = 4

PUBLISH, WITHOUT_KEYS = "publish", "producer without idempotency keys"
WAYS: Mapping[str, dict[str, Any]] = {
    PUBLISH: {},
    "producer": {},
    "producer of several keys": {"in_flight": KEYS, "key": lambda event: event["key"]},
    WITHOUT_KEYS: {"idempotent": False},
}
"""The ways to publish, and the options of their producers."""


class Sent(NamedTuple):
    """An event, and what became of it."""

    number: int
    begun_s: float
    known_s: float
    error: BaseException | None


class Publisher(threading.Thread):
    """Publishes numbered events in one way, and notes what becomes of each."""

    def __init__(self, client: Client, way: str, stop: threading.Event) -> None:
        super().__init__()
        self.way, self.event_type = way, "outage." + way.replace(" ", "-")
        self.sent: list[Sent] = []
        self._client, self._until, self._begun_s = client, stop, list[float]()

    def run(self) -> None:
        """Publish until told to stop, then wait for what is under way."""
        if self.way == PUBLISH:
            self._go_on(self._publish)
        else:
            options = WAYS[self.way]
            with self._client.producer(self.event_type, on_result=self._note, **options) as producer:
                self._go_on(producer.send)

    def _go_on(self, send: Callable[[dict[str, int]], object]) -> None:
        for number in itertools.count():
            if self._until.wait(EVERY_S):
                return
            self._begun_s.append(time.monotonic())
            send({"number": number, "key": number % KEYS})

    def _publish(self, event: dict[str, int]) -> None:
        error = None
        try:
            self._client.publish(self.event_type, [event])
        except ClientError as ex:
            error = ex
        self._known(event["number"], error)

    def _note(self, delivery: Delivery) -> None:
        self._known(json.loads(delivery.event)["number"], delivery.error)

    def _known(self, number: int, error: BaseException | None) -> None:
        self.sent.append(Sent(number, self._begun_s[number], time.monotonic(), error))


class Raw(threading.Thread):
    """Sends requests without a retry: the first that succeeds says when the server works again."""

    event_type = "outage.raw"

    def __init__(self, url: str, stop: threading.Event) -> None:
        super().__init__()
        self.worked_s: list[float] = []
        self._path, self._until = f"{url}/event-types/{self.event_type}/events", stop

    def run(self) -> None:
        """Send until told to stop."""
        while not self._until.wait(RAW_EVERY_S):
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.post(self._path, json=[{"number": 0, "metadata": metadata()}], timeout=RAW_TIMEOUT_S)
                if answer.status_code == httpx.codes.OK:
                    self.worked_s.append(time.monotonic())


class Clients:
    """One publisher for each of `WAYS`, and a consumer of all that they publish."""

    def __init__(self, url: str) -> None:
        """Make their event types and the subscription."""
        self._url, self._stop = url, threading.Event()
        self._client = Client(url)
        self.publishers = [Publisher(self._client, way, self._stop) for way in WAYS]
        self._raw = Raw(url, self._stop)
        self.handled: dict[str, list[int]] = defaultdict(list)
        """The numbers of the events of each event type, as the consumer got them."""
        self._handled_s: list[float] = []
        event_types = [each.event_type for each in self.publishers]
        for name in [*event_types, Raw.event_type]:
            schema = Schema.json({"properties": {"number": {"type": "integer"}}})
            definition = {"owning_application": "outages", "schema": schema}
            self._client.event_types.create(EventType(name=name, **definition))
        subscription = Subscription(owning_application="outages", event_types=event_types, read_from="begin")
        self._consumer = self._client.subscription(subscription)
        self._consuming = threading.Thread(target=self._consumer.run, args=(self._handle,))
        self._threads = [*self.publishers, self._raw, self._consuming]

    def _handle(self, event: Event[dict[str, Any]]) -> None:
        self.handled[event.event_type].append(event.data["number"])
        self._handled_s.append(time.monotonic())

    def start(self) -> None:
        """Start all, and wait until each works."""
        for each in self._threads:
            each.start()
        self._work_since(time.monotonic())

    def recover(self, healed_s: float) -> dict[str, float]:
        """Wait until all work again.

        Args:
            healed_s: when what was away was back, on the monotonic clock.

        Returns:
            For each way to publish, and for the consumer, how many seconds later than the server they were: until the
            fate of all that had been sent before was known, and until the first event was handled.
        """
        worked_s = wait_until(lambda: next((each for each in self._raw.worked_s if each > healed_s), 0.0))
        self._work_since(worked_s)
        late = {
            each.way: max(sent.known_s for sent in list(each.sent) if sent.begun_s <= worked_s) - worked_s
            for each in self.publishers
        }
        late["consumer"] = next(each for each in self._handled_s if each > healed_s) - worked_s
        return {"server": worked_s - healed_s} | {way: max(0.0, late_s) for way, late_s in late.items()}

    def _work_since(self, since_s: float) -> None:
        """Wait until an event that was sent later is known to be stored, in each way, and one was handled."""
        for publisher in self.publishers:
            wait_until(lambda sent=publisher.sent: any(each.begun_s > since_s for each in list(sent)))
        wait_until(lambda: self._handled_s and self._handled_s[-1] > since_s)

    def stop(self) -> None:
        """Stop publishing, and consume what is left."""
        self._stop.set()
        for each in (*self.publishers, self._raw):
            each.join(WAIT_S)
        for each in self.publishers:
            stored = {sent.number for sent in each.sent if sent.error is None}
            wait_until(lambda each=each, stored=stored: stored <= {*self.handled[each.event_type]})

    def stored(self, publisher: Publisher) -> int:
        """The number of events that the broker has of a publisher."""
        with httpx.Client(base_url=self._url, timeout=WAIT_S) as client:
            return count_events(client, publisher.event_type)

    def close(self) -> None:
        """End all."""
        self._stop.set()
        self._consumer.stop()
        for each in self._threads:
            if each.is_alive():
                each.join(WAIT_S)
        self._client.close()


@contextlib.contextmanager
def running_clients(url: str) -> Iterator[Clients]:
    """Clients of a server, which end with the block."""
    with contextlib.closing(Clients(url)) as clients:
        clients.start()
        yield clients
