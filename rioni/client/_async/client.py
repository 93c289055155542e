"""The client: everything that a broker's API can do."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rioni.client._async.administration import Monitoring, Rebuilds, Settings, Storages
from rioni.client._async.audit import Audit, Log
from rioni.client._async.event_types import EventTypes
from rioni.client._async.low_level import low_level_stream
from rioni.client._async.partitions import Partitions, Timelines
from rioni.client._async.publishing import Publishing
from rioni.client._async.schemas import Schemas
from rioni.client._async.subscriptions import Subscriptions
from rioni.client._async.transport import Token, Transport
from rioni.client.models.events import Batch, Cursor, ItemResult


if TYPE_CHECKING:
    import httpx


class AsyncClient:
    """A client of a broker: of Rioni, or of any server of the Nakadi API.

    Use it as a context manager, or close it. It may be used by several tasks at the same time.

    Args:
        url: base URL; by default that of the environment (`RIONI_URL`), else `http://localhost:8080`.
        token: bearer token, or a function that returns one, which is called again when the token is refused; by default
            that of the environment (`RIONI_TOKEN`).
        ca_certificate: PEM file with the authorities to trust, for https; by default those of the system.
        timeout_s: how long the broker may take to answer.
        attempts: how often a request is made at most, where that may help.
        headers: of each request.

    Raises:
        ValueError: the URL is not one.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: Token = None,
        ca_certificate: str | Path | None = None,
        timeout_s: float = 30,
        attempts: int = 5,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._transport = Transport(
            url,
            token=token,
            ca_certificate=ca_certificate,
            timeout_s=timeout_s,
            attempts=attempts,
            headers=headers,
        )
        self._publishing = Publishing(self._transport)
        self.event_types = EventTypes(self._transport)
        self.schemas = Schemas(self._transport)
        self.partitions = Partitions(self._transport)
        self.timelines = Timelines(self._transport)
        self.subscriptions = Subscriptions(self._transport)
        self.settings = Settings(self._transport)
        self.storages = Storages(self._transport)
        self.audit = Audit(self._transport)
        self.log = Log(self._transport)
        self.rebuilds = Rebuilds(self._transport)
        self.monitoring = Monitoring(self._transport)

    @property
    def url(self) -> str:
        """The base URL of the broker."""
        return self._transport.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, ex: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    async def request(self, method: str, template: str, **request: Any) -> "httpx.Response":
        """Make any request, with the client's connections, token and retries.

        Args:
            method: the verb.
            template: the path below the base URL, with names in braces.
            request: `path` with the values of these names, `params`, `body` (sent as JSON), `content`, `headers`,
                `repeatable` and `accept`; see `Transport.request`.

        Raises:
            ClientError: no answer, or a refusal.
        """
        return await self._transport.request(method, template, **request)

    async def publish(
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
        return await self._publishing.publish(
            event_type,
            events,
            idempotency_key=idempotency_key,
            consumer=consumer,
            headers=headers,
            compression=compression,
        )

    async def delete_events(
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
        return await self._publishing.publish(
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
    ) -> AsyncIterator[Batch]:
        """Stream an event type without a subscription, once; see `low_level_stream`."""
        return low_level_stream(
            self._transport,
            event_type,
            cursors=cursors,
            batch_limit=batch_limit,
            stream_limit=stream_limit,
            batch_flush_timeout=batch_flush_timeout,
            stream_timeout=stream_timeout,
            stream_keep_alive_limit=stream_keep_alive_limit,
        )
