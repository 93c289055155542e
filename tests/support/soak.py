"""Clients that create, change, use and delete event types until they are stopped, and record every failure."""

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator
from random import Random

import httpx

from tests.acceptance.conftest import partitions
from tests.support.builders import event_type_body
from tests.support.campaigns import length
from tests.support.server import RunningServer, Stream


REQUEST_MAX_S = 20.0
"""The longest time that a request may take."""
GIVEN_UP_S = 40.0
"""The client's own timeout, longer than that, to tell a slow answer from a missing one."""
ROUND_MAX_S = 120.0
"""The longest life of an event type, on any machine: its consumer has received everything by then."""
CHANGES, BATCH = 3, 5
PAUSE_S = length(3.2, 0.1)
"""The mean time between two requests of a client."""
REFUSED_COMMIT = (httpx.codes.CONFLICT, httpx.codes.UNPROCESSABLE_ENTITY)
"""The session has ended, or the partition belongs to another session."""
REFUSED_STREAM = (httpx.codes.CONFLICT,)
"""The earlier session of this subscription has not ended yet."""


class Soak:
    """The state that several clients share: the server, the time to stop, and the list of failures."""

    def __init__(self, server: RunningServer, storages: list[str]) -> None:
        """Use the storages in turn; the first is the default one."""
        self.server, self.storages = server, storages
        self.enough = threading.Event()
        self.problems: list[str] = []
        self.rounds = 0
        self.requests = 0

    def run(self, clients: int, duration_s: float) -> None:
        """Run a number of clients for some time; each one finishes its round."""
        self.enough.clear()
        threads = [threading.Thread(target=self._client, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        self.enough.wait(duration_s)
        self.enough.set()
        for thread in threads:
            thread.join(2 * ROUND_MAX_S)
        if any(thread.is_alive() for thread in threads):
            self.problems.append("a client has not come back")

    def _client(self, number: int) -> None:
        random = Random(number)
        while not self.enough.is_set() and not self.problems:
            try:
                with self.server.client() as http:
                    http.timeout = GIVEN_UP_S
                    Round(self, http, random).run()
            except Exception as ex:  # noqa: BLE001 - whatever it is, the test has to show it
                self.problems.append(repr(ex))
            else:
                self.rounds += 1

    def ask(self, http: httpx.Client, method: str, path: str, *expected: int, **options) -> httpx.Response:
        """Send a request, which must be answered in time with one of the expected status codes."""
        begun_s = time.monotonic()
        response = http.request(method, path, **options)
        self.check(method, path, response.status_code, begun_s, expected, response.text)
        return response

    def check(
        self, method: str, path: str, status: int, begun_s: float, expected: tuple[int, ...], text: str = ""
    ) -> None:
        """Record the answer if it is not as expected."""
        self.requests += 1
        took_s = time.monotonic() - begun_s
        if took_s > REQUEST_MAX_S or status not in expected:
            self.problems.append(f"{method} {path}: {status} after {took_s:.1f} s: {text[:500]}")


class Round:
    """The life of one event type and of its subscription."""

    def __init__(self, soak: Soak, http: httpx.Client, random: Random) -> None:
        self._soak, self._http, self._random = soak, http, random
        self._name, self._count = f"soak.{uuid.uuid4().hex}", random.randint(1, 3)
        self._wanted: set[str] = set()
        self._all_published = threading.Event()
        self._deadline_s = time.monotonic() + ROUND_MAX_S

    def run(self) -> None:
        body = event_type_body(
            name=self._name,
            partition_strategy="hash",
            partition_key_fields=["order_id"],
            **partitions(self._count),
        )
        self._ask("POST", "/event-types", 201, json=body)
        wanted = {"owning_application": "soak", "event_types": [self._name], "read_from": "begin"}
        subscription = f"/subscriptions/{self._ask('POST', '/subscriptions', 201, json=wanted).json()['id']}"
        reader = threading.Thread(target=self._read, args=(subscription,))
        reader.start()
        try:
            for _ in range(CHANGES):
                self._publish()
                self._change()
            self._publish()
        finally:
            self._all_published.set()
            reader.join()
        self._ask("DELETE", subscription, 204)
        self._ask("DELETE", f"/event-types/{self._name}", 200)

    def _ask(self, method: str, path: str, *expected: int, **options) -> httpx.Response:
        # Think time: clients that never pause would measure this machine, and leave none of it to other tests.
        self._soak.enough.wait(self._random.uniform(0, 2 * PAUSE_S))
        return self._soak.ask(self._http, method, path, *expected, **options)

    def _publish(self) -> None:
        events = [
            {
                "order_id": str(self._random.randrange(100)),
                "metadata": {"eid": str(uuid.uuid4()), "occurred_at": "2026-11-20T10:00:00Z"},
            }
            for _ in range(BATCH)
        ]
        self._ask("POST", f"/event-types/{self._name}/events", 200, json=events)
        self._wanted |= {each["metadata"]["eid"] for each in events}

    def _change(self) -> None:
        path = f"/event-types/{self._name}"
        if self._random.random() < 0.7:
            storage = self._random.choice(self._soak.storages)
            self._ask("POST", f"{path}/timelines", 201, json={"storage_id": storage})
        else:
            self._count += 1
            self._ask("PUT", f"{path}/partition-count", 204, json={"partition_count": self._count})
        self._ask("GET", f"{path}/partitions", 200)

    def _read(self, subscription: str) -> None:
        """Stream and commit until all events were received, in as many sessions as needed."""
        got: set[str] = set()
        with self._soak.server.client() as http:
            http.timeout = GIVEN_UP_S
            while not (self._all_published.is_set() and got >= self._wanted) and not self._soak.problems:
                if time.monotonic() > self._deadline_s:
                    self._soak.problems.append(f"{self._name}: {len(self._wanted - got)} events did not come")
                    return
                try:
                    got.update(self._session(http, subscription, got))
                except Exception as ex:  # noqa: BLE001 - as in `Soak`
                    self._soak.problems.append(f"{subscription}: {ex!r}")

    def _session(self, http: httpx.Client, subscription: str, got: set[str]) -> set[str]:
        options = {"batch_flush_timeout": 1, "batch_limit": 10, "stream_timeout": 30, "max_uncommitted_events": 100}
        new: set[str] = set()
        begun_s = time.monotonic()
        with self._opened(http, f"{subscription}/events", options) as stream:
            if stream is None:
                return new
            self._soak.check("GET", f"{subscription}/events", 200, begun_s, (200,))
            headers = {"X-Nakadi-StreamId": stream.stream_id}
            for batch in stream.batches_as_they_come():
                if eids := {each["metadata"]["eid"] for each in batch.get("events", [])}:
                    path = f"{subscription}/cursors"
                    items = {"items": [batch["cursor"]]}
                    answer = self._soak.ask(http, "POST", path, 200, 204, *REFUSED_COMMIT, json=items, headers=headers)
                    if answer.status_code in REFUSED_COMMIT:
                        return new
                    new |= eids
                if self._all_published.is_set() and got | new >= self._wanted:
                    return new
        return new

    @contextlib.contextmanager
    def _opened(self, http: httpx.Client, path: str, options: dict[str, int]) -> Iterator[Stream | None]:
        begun_s = time.monotonic()
        with http.stream("GET", path, params=options) as response:
            if response.status_code == httpx.codes.OK:
                yield Stream(response)
                return
            response.read()
            self._soak.check("GET", path, response.status_code, begun_s, REFUSED_STREAM, response.text)
            yield None
