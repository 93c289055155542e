"""The client: everything that a broker's API can do."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload
from weakref import WeakSet

import msgspec

from rioni.client._sync.administration import Jobs, Monitoring, Rebuilds, Settings, Storages
from rioni.client._sync.audit import Audit, Log
from rioni.client._sync.event_types import EventTypes, Partitions, Schemas, Timelines
from rioni.client._sync.producer import Producer
from rioni.client._sync.publishing import Publishing
from rioni.client._sync.subscriptions import Subscriptions
from rioni.client._sync.transport import Transport, read_batches
from rioni.client.consumption.options import ConsumerOptions
from rioni.client.keywords import ClientOptions, ProducerOptions, ProducerSettings
from rioni.wire.events import Batch, Cursor, ItemResult
from rioni.wire.subscriptions import Subscription


if TYPE_CHECKING:
    import httpx

    from rioni.client._sync.consumer import Consumer

IDLE_MARGIN_S = 30
"""Seconds after the flush time-out for which a stream may be silent before it counts as broken."""

T = TypeVar("T")


class Client:
    """A client of a broker: of Rioni, or of any server of the Nakadi API.

    Use it as a context manager, or close it. It may be used by several tasks at the same time.

    Args:
        url: base URL; by default that of the environment (`RIONI_URL`), else `http://localhost:8080`.
        token: bearer token, or a function that returns one, which is called again when the token is refused; by default
            that of the environment (`RIONI_TOKEN`).
        ca_certificate: PEM file with the authorities to trust, for https; by default those of the system.
        timeout_s: how long the broker may take to answer.
        retry_s: for how long a request is made again, if that may help; 0 for no second attempt.
        attempts: how often a request is made at most; by default as often as there is time.
        headers: of each request.
        sleep: waits a number of seconds between two attempts, and may raise to end them.

    Raises:
        ValueError: the URL is not one, or a limit makes no sense.
    """

    def __init__(self, url: str | None = None, **options: Unpack[ClientOptions]) -> None:
        self._transport = Transport(url, **options)
        self._publishing = Publishing(self._transport)
        self._producers: WeakSet[Producer] = WeakSet()
        self.event_types = EventTypes(self._transport)
        self.schemas = Schemas(self._transport)
        self.partitions = Partitions(self._transport)
        self.timelines = Timelines(self._transport)
        self.subscriptions = Subscriptions(self._transport)
        self.settings = Settings(self._transport)
        self.storages = Storages(self._transport)
        self.audit = Audit(self._transport)
        self.log = Log(self._transport)
        self.jobs = Jobs(self._transport)
        self.rebuilds = Rebuilds(self._transport)
        self.monitoring = Monitoring(self._transport)

    @property
    def url(self) -> str:
        """The base URL of the broker."""
        return self._transport.url

    @property
    def retry_s(self) -> float:
        """For how long a request is made again, if that may help."""
        return self._transport.retry_s

    @property
    def attempts(self) -> int | None:
        """The most attempts of a request; None for as many as there is time for. May be changed."""
        return self._transport.attempts

    @attempts.setter
    def attempts(self, attempts: int | None) -> None:
        self._transport.attempts = attempts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, ex: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close all producers and connections; blocks until events are stored, as `Producer.close`.

        Raises:
            EventsNotStored: events of a producer failed, and the application did not examine their errors.
        """
        with ExitStack() as stack:
            stack.callback(self._transport.close)
            for producer in [*self._producers]:
                stack.callback(producer.close)

    def pause(self, seconds: float) -> None:
        """Wait as between two attempts of a request; raises `ClientError` if the client is closed meanwhile."""
        self._transport.pause(seconds)

    def request(self, method: str, template: str, **request: Any) -> "httpx.Response":
        """Make any request, with the client's connections, token and retries.

        Args:
            method: the verb.
            template: the path below the base URL, with names in braces.
            request: `path` with the values of these names, `params`, `body` (sent as JSON), `content`, `headers`,
                `repeatable` and `accept`; see `Transport.request`.

        Raises:
            ClientError: no answer, or a refusal.
        """
        return self._transport.request(method, template, **request)

    def publish(
        self,
        event_type: str,
        events: Iterable[Any],
        *,
        idempotency_key: str | None = None,
        consumer: str | None = None,
        headers: Mapping[str, str] | None = None,
        compression: str | None = None,
    ) -> list[ItemResult]:
        """Publish a batch of events; see `Publishing.publish`. For many events use a producer."""
        return self._publishing.publish(
            event_type,
            events,
            idempotency_key=idempotency_key,
            consumer=consumer,
            headers=headers,
            compression=compression,
        )

    def producer(self, event_type: str, **options: Unpack[ProducerOptions]) -> Producer:
        """A producer, which publishes events in batches in the background; close it before the client.

        Args:
            event_type: the name.
            options: see `ProducerSettings`.

        Raises:
            ValueError: a limit is not positive, or there is no such compression.
        """
        producer = Producer(self._publishing, event_type, ProducerSettings(**options))
        self._producers.add(producer)
        return producer

    def delete_events(
        self,
        event_type: str,
        events: Iterable[Any],
        *,
        idempotency_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> list[ItemResult]:
        """Delete events of a compacted event type by their keys; see `Publishing.publish`.

        Args:
            event_type: the name.
            events: with `metadata.partition_compaction_key`, and what their partition depends on.
            idempotency_key: as for `publish`.
            headers: as for `publish`.
        """
        return self._publishing.publish(
            event_type, events, idempotency_key=idempotency_key, headers=headers, delete=True
        )

    def events(
        self,
        event_type: str,
        *,
        cursors: Sequence[Cursor] = (),
        batch_limit: int = 500,
        stream_limit: int = 0,
        batch_flush_timeout: int = 5,
        stream_timeout: int = 0,
        stream_keep_alive_limit: int = 0,
        events_per_second_limit: int = 0,
        filter: str | None = None,  # noqa: A002 - the name of the API
    ) -> Iterator[Batch]:
        """Stream an event type without a subscription, once; batches without events are keep-alives.

        Args:
            event_type: the name.
            cursors: the last event read of each partition to stream, or `BEGIN`; without cursors all partitions are
                streamed, from now on.
            batch_limit: events in a batch at most.
            stream_limit: events after which the stream ends; 0 for none.
            batch_flush_timeout: seconds after which a batch is sent that has not become full.
            stream_timeout: seconds after which the stream ends; 0 for about an hour.
            stream_keep_alive_limit: keep-alives in a row after which the stream ends; 0 for none.
            events_per_second_limit: events that are looked at in a second; of more come the newest, and the number of
                the others in `left_out` of a batch's `info`. 0 for all; of Rioni only.
            filter: a CEL expression over `event`: only events that match; of Rioni only.

        Raises:
            PreconditionFailed: a cursor names nothing that can be read.
            ClientError: no answer, another refusal, or a broken connection.
        """
        places = [{"partition": cursor.partition, "offset": cursor.offset} for cursor in cursors]
        params = {
            # The broker refuses batches that are larger than the whole stream.
            "batch_limit": min(batch_limit, stream_limit or batch_limit),
            "stream_limit": stream_limit or None,
            "batch_flush_timeout": min(batch_flush_timeout, stream_timeout or batch_flush_timeout),
            "stream_timeout": stream_timeout or None,
            "stream_keep_alive_limit": stream_keep_alive_limit or None,
            "events_per_second_limit": events_per_second_limit or None,
            "filter": filter,
        }
        with self._transport.stream(
            "GET",
            "/event-types/{name}/events",
            path={"name": event_type},
            params=params,
            headers={"X-Nakadi-Cursors": msgspec.json.encode(places).decode()} if places else None,
            idle_s=batch_flush_timeout + IDLE_MARGIN_S,
        ) as response:
            for batch in read_batches(response):
                yield batch

    @overload
    def subscription(
        self, subscription: str | Subscription, *, type: None = None, **options: Unpack[ConsumerOptions]
    ) -> "Consumer[dict[str, Any]]": ...
    @overload
    def subscription(
        self, subscription: str | Subscription, *, type: type[T], **options: Unpack[ConsumerOptions]
    ) -> "Consumer[T]": ...
    @overload
    def subscription(
        self, subscription: str | Subscription, *, type: Mapping[str, Any], **options: Unpack[ConsumerOptions]
    ) -> "Consumer[Any]": ...
    def subscription(
        self,
        subscription: str | Subscription,
        *,
        type: Any = None,  # noqa: A002 - the best name here, as in `msgspec.json.decode`
        **options: Unpack[ConsumerOptions],
    ) -> "Consumer[Any]":
        """Consume a subscription: `for event in client.subscription(...)`, or `run` of the consumer that is returned.

        Args:
            subscription: its id, or its definition; then it is created if it does not exist.
            type: the type that events are decoded to: a msgspec struct, a dataclass, a TypedDict, a Pydantic model; or
                a mapping from names of event types to such. Without a type they are dictionaries.
            options: see `ConsumerOptions`.

        Raises:
            ValueError: an option makes no sense.
        """
        # PERF: half of the applications publish only.
        from rioni.client._sync.consumer import Consumer  # noqa: PLC0415

        return Consumer(self._transport, subscription, type, options)
