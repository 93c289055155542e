"""`rioni bench`: publishes to, or consumes from, any server of the API as fast as it answers."""

import math
import secrets
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson

from rioni.cli.broker.load_client import LOST, LoadConnection, LoadTarget, Loop
from rioni.client import Client, EventType, NotFound, Subscription
from rioni.domain.errors import Invalid, Malformed


if TYPE_CHECKING:
    from rioni.cli.broker.bench_runs import Consume, Publish, Report


GRACE_S = 10
"""Seconds that requests that are under way at the end may take."""
PARTITIONS = 8
OWNER = "rioni-bench"
STREAM_ID = "X-Nakadi-StreamId"

_KEY = b"00000000000000000000000000000000"
_OCCURRED_AT = "2020-01-01T00:00:00Z"
_PAYLOAD = {"number": {"type": "integer"}, "text": {"type": "string"}}


# --- Publishing ---


def publish(server: LoadTarget, plan: "Publish", client: Client) -> "Report":
    """Publish until the time or the number of requests is reached; blocks that long.

    Args:
        server: to measure.
        plan: what to publish, and for how long.
        client: of the server, for requests that are not measured.

    Raises:
        Invalid: the event type is of another category.
        Unavailable: the server can't be reached.
        ClientError: it refuses the event type.
    """
    # A wrong URL is an error at once.
    server.connect().close()
    _ensure_event_type(client, plan)
    bodies = Bodies(plan.category, plan.batch, plan.size)
    report = plan.begin()
    loop = Loop()
    publishers = [_Publisher(server, loop, plan, bodies, report) for _ in range(plan.connections)]
    try:
        for publisher in publishers:
            publisher.next()
        loop.run(report.started_s + plan.seconds + GRACE_S, lambda: all(publisher.done for publisher in publishers))
    finally:
        loop.close()
    for publisher in publishers:
        publisher.give_up()
    return report


class Bodies:
    """Makes bodies of publish requests, all of one length, each event with a different `eid`.

    PERF: a body is one formatting of a template with consecutive numbers: some 20 µs for 100 events, while the server
    needs half a millisecond to read them.
    """

    def __init__(self, category: str, batch: int, size: int) -> None:
        run = secrets.token_hex(6)
        eid = f"%08x-{run[:4]}-4{run[4:7]}-8{run[7:10]}-{secrets.token_hex(6)}"
        event = _event(category, eid, "")
        padding = max(0, size - len(orjson.dumps(event)) - len("00000000") + len("%08x"))
        event = _event(category, eid, "x" * padding)
        self._template = b"[" + b",".join([orjson.dumps(event)] * batch) + b"]"
        self._batch, self._next = batch, 0
        self.size = len(self._template % tuple(range(batch)))

    def next(self) -> bytes:
        """The next body."""
        first, self._next = self._next, self._next + self._batch
        return self._template % tuple(range(first, self._next))


def _event(category: str, eid: str, text: str) -> dict[str, Any]:
    payload = {"number": 1, "text": text}
    if category == "undefined":
        return {"id": eid, **payload}
    metadata = {"eid": eid, "occurred_at": _OCCURRED_AT}
    if category == "data":
        return {"metadata": metadata, "data_type": "bench", "data_op": "U", "data": payload}
    return {"metadata": metadata, **payload}


class _Publisher:
    """Keeps one connection busy: the answer to a request brings on the next."""

    def __init__(self, server: LoadTarget, loop: Loop, plan: "Publish", bodies: Bodies, report: "Report") -> None:
        self._connection = LoadConnection(server, loop)
        self._plan, self._bodies, self._report = plan, bodies, report
        keys = {"Idempotency_Key": _KEY.decode()} if plan.idempotency_keys else {}
        self._head = server.head("POST", f"{_path(plan.name)}/events", bodies.size, **keys)
        self._next_key = secrets.randbits(100)
        self._stop_s = report.started_s + plan.seconds
        self._sent_s = 0.0
        self.done = False

    def next(self) -> None:
        """Send the next request, or be done."""
        self._sent_s = time.monotonic()
        if self._sent_s >= self._stop_s or not self._report.take_turn(self._plan.requests):
            self.done = True
            return
        self._connection.send(self._next_head() + self._bodies.next(), self._answered)

    def give_up(self) -> None:
        """Count the request that is still without an answer."""
        if not self._connection.idle:
            self._report.add_answer(LOST, b"", self._sent_s)

    def _next_head(self) -> bytes:
        self._next_key += 1
        return self._head.replace(_KEY, b"%032x" % self._next_key, 1) if self._plan.idempotency_keys else self._head

    def _answered(self, status: int, body: bytes) -> None:
        self._report.add_answer(status, body, self._sent_s)
        if self._report.is_success(status):
            self._report.add_events(self._plan.batch, self._bodies.size)
        # A broken connection is not opened again: the server may be gone.
        if status == LOST:
            self.done = True
        else:
            self.next()


def _path(event_type: str) -> str:
    return f"/event-types/{quote(event_type, safe='')}"


def _ensure_event_type(client: Client, plan: "Publish") -> None:
    try:
        category = client.event_types.get(plan.name).category
    except NotFound:
        client.event_types.create(_event_type(plan))
        return
    if category != plan.category:
        raise Invalid(f"{plan.name} has the category {category}: name it with --category, or another event type.")


def _event_type(plan: "Publish") -> EventType:
    schema = {"type": "object", "properties": {"id": {"type": "string"}, **_PAYLOAD}, "required": ["number"]}
    load = {"messages_per_minute": 1_000_000, "message_size": max(plan.size, 1)}
    definition = {
        "name": plan.name,
        "owning_application": OWNER,
        "category": plan.category,
        "enrichment_strategies": [] if plan.category == "undefined" else ["metadata_enrichment"],
        "default_statistic": load | {"read_parallelism": PARTITIONS, "write_parallelism": PARTITIONS},
        "schema": {"type": "json_schema", "schema": orjson.dumps(schema).decode()},
    }
    return EventType.of(definition)


# --- Consuming ---


def consume(server: LoadTarget, plan: "Consume", client: Client) -> "Report":
    """Consume through a new subscription until the time or the number of events is reached; blocks that long.

    Args:
        server: to measure.
        plan: what to consume, and for how long.
        client: of the server, for requests that are not measured.

    Raises:
        Unavailable: the server can't be reached.
        ClientError: it refuses the subscription.
    """
    # A wrong URL is an error at once.
    server.connect().close()
    wanted = Subscription(
        owning_application=OWNER,
        consumer_group=secrets.token_hex(8),
        event_types=[plan.event_type],
        read_from=plan.read_from,
    )
    subscription = client.subscriptions.create(wanted)
    path = f"/subscriptions/{subscription.id}"
    report = plan.begin()
    events_max = math.inf if plan.events is None else plan.events
    received = ReceivedEvents(report)
    loop = Loop()
    streams = [_Stream(server, loop, plan, path, received, report) for _ in range(plan.connections)]
    try:
        for stream in streams:
            stream.open()
        loop.run(
            report.started_s + plan.seconds,
            lambda: report.events >= events_max or all(stream.done for stream in streams),
        )
        loop.run(time.monotonic() + GRACE_S, lambda: all(stream.committed for stream in streams))
    finally:
        loop.close()
        client.subscriptions.delete(subscription.id)
    return report


class ReceivedEvents:
    """Counts events without parsing them: by how far the cursor of a partition has moved since its last batch.

    Only the first batch of a partition is parsed. Batches that come again after a partition has moved to another
    stream have no events after the last cursor, and count for nothing.
    """

    def __init__(self, report: "Report") -> None:
        self._report = report
        self._positions: dict[bytes, int] = {}

    def add(self, frame: bytes) -> bytes | None:
        """Count a batch; return its cursor as it stands there, None for a keep-alive.

        Raises:
            Malformed: this is not a batch.
        """
        if not frame.startswith(b'{"cursor":{'):
            raise Malformed(f"The stream sent something that is not a batch: {frame[:100]!r}")
        end = frame.index(b"}") + 1
        if not frame.startswith(b',"events":[', end):
            return None
        cursor = frame[len(b'{"cursor":') : end]
        fields = orjson.loads(cursor)
        partition = f"{fields.get('event_type')}:{fields['partition']}".encode()
        position = int(fields["offset"].rpartition("-")[2])
        before = self._positions.get(partition)
        count = len(orjson.loads(frame)["events"]) if before is None else max(position - before, 0)
        self._positions[partition] = position if before is None else max(position, before)
        self._report.add_events(count, len(frame))
        return cursor


class _Stream:
    """One stream of the subscription, and the connection that commits the events received since the last commit."""

    def __init__(
        self, server: LoadTarget, loop: Loop, plan: "Consume", path: str, received: ReceivedEvents, report: "Report"
    ) -> None:
        self._server, self._path, self._received, self._report = server, path, received, report
        query = f"batch_limit={plan.batch}&max_uncommitted_events={plan.window}&batch_flush_timeout=1"
        self._request = server.head("GET", f"{path}/events?{query}")
        self._events, self._commits = LoadConnection(server, loop), LoadConnection(server, loop)
        self._rest = b""
        self._cursors: dict[str, bytes] = {}
        self._sent_s = 0.0
        self.done = False

    @property
    def committed(self) -> bool:
        """Whether no commit is under way."""
        return self._commits.idle

    def open(self) -> None:
        """Begin to stream."""
        self._events.send(self._request, self._ended, self._came)

    def _came(self, data: bytes) -> None:
        if not self._report.is_success(self._events.answer.status):
            self._rest += data
            return
        *frames, self._rest = (self._rest + data).split(b"\n")
        for frame in frames:
            if cursor := self._received.add(frame):
                self._cursors[orjson.loads(cursor)["partition"]] = cursor
        if self._commits.idle:
            self._commit()

    def _ended(self, status: int, _body: bytes) -> None:
        if not self._report.is_success(status):
            self._report.add_answer(status, self._rest, 0.0)
        self.done = True

    def _commit(self) -> None:
        if not self._cursors:
            return
        body = b'{"items":[' + b",".join(self._cursors.values()) + b"]}"
        self._cursors = {}
        self._sent_s = time.monotonic()
        stream_id = self._events.answer.headers.get(STREAM_ID.lower().encode(), b"").decode()
        head = self._server.head("POST", f"{self._path}/cursors", len(body), X_Nakadi_StreamId=stream_id)
        self._commits.send(head + body, self._committed)

    def _committed(self, status: int, body: bytes) -> None:
        self._report.add_answer(status, body, self._sent_s)
        if status != LOST:
            self._commit()
