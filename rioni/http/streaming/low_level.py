"""Opens low-level streams: checks, start positions and slots (consumption contract 4.1 to 4.3, 4.6)."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import falcon
import orjson

from rioni.commands.positions import readable_place
from rioni.domain.cursor import Place
from rioni.domain.errors import (
    EventTypeNotFound,
    Invalid,
    InvalidCursor,
    Malformed,
    NotFound,
    TooMany,
    UnusableStart,
)
from rioni.domain.ports import Bounds, EventTypePartition
from rioni.domain.streaming.parameters import StreamParameters, low_level_parameters
from rioni.http.metrics import Metrics
from rioni.http.requests import subject_of
from rioni.http.services import Services
from rioni.http.streaming.opening import Meter, client_of, respond, sources_of, stream_limits
from rioni.http.streaming.pump import LowLevelStream, Source


CURSORS_HEADER = "X-Nakadi-Cursors"
DEPRECATION = (
    "299 - nakadi - the Low-level API is deprecated and will be removed from a future release. "
    "Please consider migrating to the Subscriptions API."
)


class Slots:
    """How many streams each client has on each partition; of this process."""

    def __init__(self, streams_max: int) -> None:
        self._streams_max = streams_max
        self._taken: Counter[tuple[str, EventTypePartition]] = Counter()

    def take(self, client: str, event_type: str, partitions: Collection[EventTypePartition]) -> Callable[[], None]:
        """Take a slot of each partition, or none; what is returned gives them back.

        Raises:
            TooMany: names the partitions that have none left.
        """
        full = [key.partition for key in partitions if self._taken[client, key] >= self._streams_max]
        if full:
            raise TooMany(
                "You exceeded the maximum number of simultaneous connections to a single partition for event type: "
                f"{event_type}, partition(s): {', '.join(full)}; "
                f"max limit is {self._streams_max} connections per client"
            )
        slots = Counter((client, key) for key in partitions)
        self._taken += slots

        def give_back() -> None:
            self._taken -= slots

        return give_back


def open_low_level_stream(
    req: falcon.Request, resp: falcon.Response, name: str, services: Services, metrics: Metrics, slots: Slots
) -> None:
    """Check a request in the contract's order, and begin to stream.

    Raises:
        Malformed: a parameter is not a number, or the cursors can't be read.
        Blocked: event type or application may not consume.
        NotFound: there is no such event type.
        Denied: the subject may not read it.
        UnusableStart: a cursor names nothing that can be read.
        Invalid: a parameter is out of range.
        TooMany: the client has too many streams.
    """
    subject, refused = subject_of(req), None
    services.registry.refresh()
    try:
        parameters: StreamParameters | None = low_level_parameters(req.params, stream_limits(services))
    except Invalid as ex:
        parameters, refused = None, ex

    def check() -> None:
        services.gate.blacklist("CONSUMER", subject, (name,))
        services.gate.event_type(subject, name, "READ")

    try:
        check()
    except EventTypeNotFound as ex:
        raise NotFound("topic not found") from ex
    sources = sources_of(services, name)
    bounds = services.store.bounds(sources[0].topic)
    start = _start(req.get_header(CURSORS_HEADER), name, sources, bounds)
    if parameters is None:
        assert refused is not None
        raise refused
    give_back = slots.take(subject.name, name, start.keys())
    client = client_of(req, services, check, Meter(metrics, "low-level", give_back))
    read = {key: sources[int(key.partition)] for key in start}
    resp.set_header("Warning", DEPRECATION)
    respond(req, resp, LowLevelStream(parameters, start, read, services.stream_ports(), client))


def _start(
    header: str | None, name: str, sources: Sequence[Source], bounds: Sequence[Bounds]
) -> dict[EventTypePartition, Place]:
    """The partitions to read, and the last place read in each: without cursors all of them, from the end."""
    if header is None:
        return {
            EventTypePartition(name, str(number)): Place(source.order, bounds[number].newest)
            for number, source in enumerate(sources)
        }
    try:
        return {
            EventTypePartition(name, partition): readable_place(name, partition, offset, sources[0].order, bounds)
            for partition, offset in _cursors(header)
        }
    except InvalidCursor as ex:
        raise UnusableStart(str(ex)) from ex


def _cursors(header: str) -> list[tuple[str, str]]:
    try:
        items = orjson.loads(header)
        cursors = [(item.get("partition"), item.get("offset")) for item in items]
    except (orjson.JSONDecodeError, AttributeError, TypeError) as ex:
        raise Malformed("incorrect syntax of X-nakadi-cursors header") from ex
    if not isinstance(items, list):
        raise Malformed("incorrect syntax of X-nakadi-cursors header")
    if not cursors:
        raise UnusableStart("invalid cursor format, partition: null offset: null")
    for partition, offset in cursors:
        if partition is None:
            raise UnusableStart("partition must not be null")
        if offset is None:
            raise UnusableStart("offset must not be null")
        if not isinstance(partition, str) or not isinstance(offset, str):
            raise Malformed("incorrect syntax of X-nakadi-cursors header")
    named = [partition for partition, _ in cursors]
    for partition in named:
        if named.count(partition) > 1:
            raise UnusableStart(f"more than one cursor for partition {partition}")
    return cursors
