"""A broker without a network, in the time of the event loop, that fails at random; an HTTP transport of a client.

It serves one subscription of one event type, and checks what the client handles and commits by the model.
"""

import asyncio
import contextlib
import itertools
import json
import random
from collections import Counter
from collections.abc import AsyncIterator

import httpx

from tests.support.subscription_model import PartitionModel, offset_of, position_of


FLUSH_S = 30
COMMIT_TIMEOUT_S = 60
TOKEN_S = 1_800
ID = "9d4d5a5c-7e5e-4b52-8f5b-3a0a3f0f6b11"


class _Socket:
    """The socket that the client shuts down to end a stream."""

    def __init__(self, stream: "_Stream") -> None:
        self._stream = stream

    def get_extra_info(self, _name: str) -> "_Socket":
        return self

    def shutdown(self, _how: int) -> None:
        self._stream.cut("closed by the client")


class _Stream(httpx.AsyncByteStream):
    """One stream: batches and keep-alives, until it ends or breaks."""

    def __init__(self, broker: "SimulatedBroker", stream_id: str, ends_at_s: float, breaks: bool) -> None:
        self.broker, self.stream_id, self.ends_at_s, self.breaks = broker, stream_id, ends_at_s, breaks
        self.broken: str | None = None
        self.changed = asyncio.Event()

    def cut(self, reason: str) -> None:
        self.broken = reason
        self.changed.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        broker, sent_s = self.broker, dict.fromkeys(self.broker.partitions, -FLUSH_S)
        while True:
            now_s = broker.now_s
            if self.broken or (self.breaks and now_s >= self.ends_at_s):
                raise httpx.ReadError(self.broken or "connection reset")
            if now_s >= self.ends_at_s or broker.stopped(self):
                yield self._line(next(iter(sent_s)), [], info="Stream timeout reached")
                return
            for name, partition in broker.partitions.items():
                if partition.owner == self.stream_id:
                    events = partition.next_events(broker.random.randint(1, 5)) if partition.outstanding < 10 else []
                    if events or now_s >= sent_s[name] + FLUSH_S:
                        sent_s[name] = now_s
                        yield self._line(name, events)
            self.changed.clear()
            await _wait(self.changed, min(1.0, FLUSH_S) if broker.busy(self) else 10.0)

    def _line(self, name: str, events: list[int], info: str | None = None) -> bytes:
        cursor = {"event_type": "e", "partition": name, "offset": offset_of(self.broker.partitions[name].sent)}
        batch = {"cursor": {**cursor, "cursor_token": "t"}}
        if events:
            batch["events"] = [{"n": position} for position in events]
        if info:
            batch["info"] = {"debug": info}
        return json.dumps(batch).encode() + b"\n"

    async def aclose(self) -> None:
        self.broker.disconnected(self)


class SimulatedBroker(httpx.AsyncBaseTransport):
    """Answers the requests of one consumer.

    Args:
        seed: of its faults.
        partitions: their number.
    """

    def __init__(self, seed: int, partitions: int = 3) -> None:
        self.random = random.Random(seed)
        self.partitions = {str(number): PartitionModel() for number in range(partitions)}
        self.counts: Counter[str] = Counter()
        self.requests_s: list[float] = []
        """When streams were asked for."""
        self.unavailable_until_s = 0.0
        self._numbers = itertools.count()
        self._stream: _Stream | None = None
        self._sessions: dict[str, float] = {}
        """Streams that may commit, and when this ends at the latest."""
        self._ask_not_before_s = 0.0

    @property
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def token(self) -> str:
        """A token of the present time."""
        return f"{self.now_s // TOKEN_S:.0f}"

    # --- what happens meanwhile ---

    async def publish(self, until_s: float, every_s: float) -> None:
        """Publish events, one at a time to random partitions."""
        while self.now_s < until_s:
            await asyncio.sleep(self.random.expovariate(1 / every_s))
            self.random.choice(list(self.partitions.values())).publish(self.random.choice((1, 1, 1, 2)))
            if self._stream is not None:
                self._stream.changed.set()

    def busy(self, stream: _Stream) -> bool:
        """Whether something can be sent."""
        return any(
            each.owner == stream.stream_id
            and each.positions
            and each.positions[-1] > each.sent
            and each.outstanding < 10
            for each in self.partitions.values()
        )

    def stopped(self, stream: _Stream) -> bool:
        return stream.stream_id not in self._sessions

    def disconnected(self, stream: _Stream) -> None:
        """The session lives until everything is committed, or for its commit time-out."""
        if stream is self._stream:
            self._stream = None
            if stream.stream_id in self._sessions:
                self._sessions[stream.stream_id] = self.now_s + COMMIT_TIMEOUT_S

    def _expire(self) -> None:
        for stream_id, until_s in list(self._sessions.items()):
            owned = [each for each in self.partitions.values() if each.owner == stream_id]
            gone = self._stream is None or self._stream.stream_id != stream_id
            if gone and (self.now_s >= until_s or not any(each.outstanding for each in owned)):
                self._end(stream_id)

    def _end(self, stream_id: str) -> None:
        self._sessions.pop(stream_id, None)
        for partition in self.partitions.values():
            if partition.owner == stream_id:
                partition.assign(None)

    # --- requests ---

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(self.random.choice((0.001, 0.01, 0.5)))
        self._expire()
        path, method = request.url.path, request.method
        if path.endswith("/events"):
            return self._open(request)
        if method == "DELETE":
            self.counts["ended by the client"] += 1
            self._end(path.rpartition("/")[2])
            return httpx.Response(204)
        if method == "GET":
            items = [
                {"event_type": "e", "partition": name, "offset": offset_of(each.committed), "cursor_token": "t"}
                for name, each in self.partitions.items()
            ]
            return httpx.Response(200, json={"items": items})
        return self._commit(request)

    def _open(self, request: httpx.Request) -> httpx.Response:
        self.requests_s.append(self.now_s)
        assert self.now_s >= self._ask_not_before_s, "the client did not wait as long as it was asked to"
        if self.now_s < self.unavailable_until_s:
            return self._refuse_to_open()
        if request.headers["Authorization"] != f"Bearer {self.token()}":
            self.counts["401"] += 1
            return httpx.Response(401, json={"title": "Unauthorized", "status": 401})
        if self._sessions:
            self.counts["409"] += 1
            return httpx.Response(409, json={"title": "Conflict", "status": 409, "detail": "No free slots"})
        if self.random.random() < 0.3:
            self.unavailable_until_s = self.now_s + self.random.choice((0, 5, 60, 1_200))
            return self._refuse_to_open()
        return self._stream_response(request)

    def _refuse_to_open(self) -> httpx.Response:
        kind = self.random.choice((409, 429, 500, 503, "asked to wait", "no connection"))
        self.counts[str(kind)] += 1
        if kind == "no connection":
            raise httpx.ConnectError("connection refused")
        if kind == "asked to wait":
            wait_s = self.random.choice((1, 7, 20))
            self._ask_not_before_s = self.now_s + wait_s
            return httpx.Response(503, headers={"Retry-After": str(wait_s)}, json={"status": 503})
        return httpx.Response(kind, json={"status": kind})

    def _stream_response(self, request: httpx.Request) -> httpx.Response:
        stream_id = f"stream-{next(self._numbers)}"
        self.counts["opened"] += 1
        life_s = self.random.choice((0.5, 60, 900, 3_600))
        breaks = self.random.random() < 0.4
        self._stream = _Stream(self, stream_id, self.now_s + life_s, breaks)
        self._sessions[stream_id] = float("inf")
        for partition in self.partitions.values():
            partition.assign(stream_id)
        return httpx.Response(
            200,
            headers={"X-Nakadi-StreamId": stream_id},
            stream=self._stream,
            extensions={"network_stream": _Socket(self._stream)},
            request=request,
        )

    def _commit(self, request: httpx.Request) -> httpx.Response:
        fault = self.random.random()
        if fault < 0.03:
            self.counts["commit failed"] += 1
            return httpx.Response(503, json={"status": 503})
        stream_id = request.headers["X-Nakadi-StreamId"]
        places = [(each["partition"], position_of(each["offset"])) for each in json.loads(request.content)["items"]]
        if stream_id not in self._sessions or any(self.partitions[name].owner != stream_id for name, _ in places):
            self.counts["commit refused"] += 1
            return httpx.Response(422, json={"status": 422, "detail": "Session with stream id not found"})
        advanced = [(name, position) for name, position in places if position > self.partitions[name].committed]
        for name, position in places:
            assert self.partitions[name].commit(stream_id, position)
        if fault > 0.97:
            self.counts["answer lost"] += 1
            raise httpx.ReadError("connection reset")
        for name, position in places:
            self.partitions[name].acknowledged = max(self.partitions[name].acknowledged, position)
        if self._stream is not None:
            self._stream.changed.set()
        return httpx.Response(204) if len(advanced) == len(places) else httpx.Response(200, json={"items": []})


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
