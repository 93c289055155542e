"""Publishing of single batches, and of the batches of a producer, until each event is stored or has failed."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec

from rioni.client import encoding
from rioni.client._sync.send_buffer import BatchPart, ProducerBatch
from rioni.client._sync.transport import Transport
from rioni.client.answers import decode
from rioni.client.errors import (
    BadRequest,
    ClientError,
    EventFailed,
    Problem,
    PublishingFailed,
    ServerError,
    TooLarge,
    UnexpectedAnswer,
)
from rioni.client.retries import backoff_s
from rioni.wire.events import ItemResult


# --- Publishing of single batches ---

CATEGORIES_MAX = 10_000
"""Event types whose category is remembered."""
_MULTI_STATUS = 207
_UNPROCESSABLE = 422

_EVENTS = "/event-types/{name}/events"
_DELETED_EVENTS = "/event-types/{name}/deleted-events"


class _Categorized(msgspec.Struct):
    category: str


class Publishing:
    """Encodes and publishes batches."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._categories: dict[str, str] = {}

    def publish(
        self,
        event_type: str,
        events: Iterable[Any],
        *,
        idempotency_key: str | None = None,
        consumer: str | None = None,
        headers: Mapping[str, str] | None = None,
        compression: str | None = None,
        delete: bool = False,
    ) -> list[ItemResult]:
        """Publish a batch; returns nothing if all events were stored and the broker reports nothing else.

        It is sent again under its key for up to `retry_s` of the client, also if the broker has stored a part of it:
        then the broker stores the missing events. Blocks at most for `retry_s` and `timeout_s`.

        Args:
            event_type: the name.
            events: mappings, msgspec structs, dataclasses, Pydantic models, or JSON as bytes or text. Events without
                `metadata` get an `eid` and the present time, unless the category of the event type is `undefined`.
            idempotency_key: names the batch, so that sending it again stores nothing twice; by default a new one.
            consumer: id of the one subscription that gets the events; None for all.
            headers: further ones, such as `X-Flow-Id`.
            compression: of the body: `gzip` or `zstd`.
            delete: whether the events are deletions, of a compacted event type.

        Raises:
            TypeError, ValueError: an event can't be written as JSON; the text names it, and the path of the value.
            PublishingFailed: some events were not stored; it has the result of each.
            ClientError: no answer, or the batch as a whole was refused.
        """
        until_s = time.monotonic() + self._transport.retry_s
        add_metadata = not delete and self.has_metadata(event_type)
        encoded = encoding.encode_events(events, add_metadata=add_metadata)
        send = partial(
            self.send,
            event_type,
            encoding.encode_batch(encoded),
            idempotency_key=idempotency_key or str(uuid4()),
            consumer=consumer,
            headers=headers,
            compression=compression,
            template=_DELETED_EVENTS if delete else _EVENTS,
        )
        failures = 0
        while True:
            try:
                return send(retry_s=max(0.0, until_s - time.monotonic()))
            except PublishingFailed as ex:
                failures += 1
                wait_s = backoff_s(failures)
                if (
                    not ex.may_be_completed
                    or time.monotonic() + wait_s > until_s
                    or failures == self._transport.attempts
                ):
                    raise
                self._transport.failed(ex)
            self._transport.pause(wait_s)

    def send(
        self,
        event_type: str,
        body: bytes,
        *,
        idempotency_key: str | None,
        consumer: str | None = None,
        headers: Mapping[str, str] | None = None,
        compression: str | None = None,
        template: str = _EVENTS,
        **patience: Any,
    ) -> list[ItemResult]:
        """Publish a batch that is encoded already; as `publish`, but without a key if that is None.

        `patience` sets how long a request is repeated: `retry_s`, `deadline_s` and `sleep` of `Transport.request`.
        """
        sent_headers = {"Content-Type": "application/json", **(headers or {})}
        if idempotency_key is not None:
            sent_headers["Idempotency-Key"] = idempotency_key
        if consumer is not None:
            sent_headers["X-CONSUMER-TAG"] = f"consumer_subscription_id={consumer}"
        compress = encoding.compressor(compression)
        if compress is not None and len(body) >= encoding.COMPRESSED_BYTES_MIN:
            body = compress(body)
            sent_headers["Content-Encoding"] = str(compression)
        response = self._transport.request(
            "POST",
            template,
            path={"name": event_type},
            content=body,
            headers=sent_headers,
            # The key lets the broker recognise the batch; brokers that do not know the header store it at least once.
            repeatable=True,
            accept=(_MULTI_STATUS, _UNPROCESSABLE),
            **patience,
        )
        if response.is_success and response.status_code != _MULTI_STATUS:
            return []
        if not response.content.lstrip().startswith(b"["):
            raise self._transport.problem(response)
        results = decode(response, list[ItemResult])
        if any(result.publishing_status != "submitted" for result in results):
            raise PublishingFailed(event_type, results)
        return results

    def why(self, text: str) -> str:
        """A text, and since when and why requests fail, if they do."""
        return self._transport.why(text)

    def has_metadata(self, event_type: str, *, deadline_s: float | None = None) -> bool:
        """Whether events of an event type have metadata; the broker is asked once, about unknown ones each time.

        Args:
            event_type: the name.
            deadline_s: until when the broker is asked, on the monotonic clock; by default as often as by all requests.
        """
        category = self._categories.get(event_type)
        if category is None:
            try:
                found = self._transport.fetch(
                    _Categorized, "GET", "/event-types/{name}", path={"name": event_type}, deadline_s=deadline_s
                )
            except ServerError:
                raise
            except (Problem, UnexpectedAnswer):
                # The broker reports what is wrong when the batch is published.
                return True
            if len(self._categories) >= CATEGORIES_MAX:
                self._categories.clear()
            category = self._categories[event_type] = found.category
        return category != encoding.CATEGORY_WITHOUT_METADATA


# --- Sends a batch of a producer, in whole or in pieces, until each of its events is stored or has failed ---

_UNREADABLE_EVENT = "parsing event"
"""The text in the detail of a 400 that is caused by an event, not by a header."""


class BatchSender:
    """Sends batches to one event type."""

    def __init__(
        self,
        publishing: Publishing,
        event_type: str,
        *,
        idempotent: bool,
        compression: str | None,
        headers: Mapping[str, str],
        sleep: Callable[[float], Any],
    ) -> None:
        """Connect to nothing yet.

        Args:
            publishing: sends one request, and repeats it if that may help.
            event_type: the name.
            idempotent: whether requests have an idempotency key.
            compression: of bodies.
            headers: of each request.
            sleep: waits between attempts; raises what ends them early.
        """
        self._publishing, self._event_type = publishing, event_type
        self._idempotent, self._compression, self._headers, self._sleep = idempotent, compression, headers, sleep

    def send(self, batch: ProducerBatch) -> None:
        """Send a batch, until its deadline; blocks until then.

        The failures are in `errors` of the batch. Pieces are sent one after the other, so that order is kept.

        Raises:
            ClientError: sending was ended early; `pieces` of the batch has those not settled.
        """
        batch.pieces = [BatchPart(range(len(batch.events)))]
        while batch.pieces:
            again = self._send_piece(batch, batch.pieces[0])
            batch.pieces = [*again, *batch.pieces[1:]]

    def _send_piece(self, batch: ProducerBatch, piece: BatchPart) -> Sequence[BatchPart]:
        """Send a piece; returns the pieces to send in its place, in order."""
        events = batch.events if len(piece.indexes) == len(batch.events) else [batch.events[n] for n in piece.indexes]
        try:
            self._publishing.send(
                self._event_type,
                encoding.encode_batch(events),
                idempotency_key=piece.key if self._idempotent else None,
                headers={**batch.headers, **self._headers},
                compression=self._compression,
                deadline_s=batch.deadline_s,
                sleep=self._sleep,
            )
        except PublishingFailed as ex:
            if len(ex.results) == len(piece.indexes):
                if ex.may_be_completed:
                    return self._after_partial(batch, piece, ex.results)
                return self._after_refusal(batch, piece, ex.results)
            batch.fail(piece.missing, ex)
        except (BadRequest, TooLarge) as ex:
            if len(piece.indexes) > 1 and _is_about_events(ex):
                middle = len(piece.indexes) // 2
                return [BatchPart(piece.indexes[:middle]), BatchPart(piece.indexes[middle:])]
            batch.fail(piece.missing, ex)
        except ClientError as ex:
            batch.fail(piece.missing, ex)
        return ()

    def _after_partial(
        self, batch: ProducerBatch, piece: BatchPart, results: Sequence[ItemResult]
    ) -> Sequence[BatchPart]:
        """Return the pieces to send after a part of the events was stored.

        Under its key the whole piece is sent again, and the broker stores the missing events; events whose outcome is
        unknown are not stored twice. Without a key only the failed events are sent.
        """
        outcomes = dict(zip(piece.indexes, results, strict=True))
        piece.missing = [n for n in piece.missing if outcomes[n].publishing_status != "submitted"]
        if not self._idempotent:
            piece.indexes = piece.missing
        piece.repetitions += 1
        wait_s = backoff_s(piece.repetitions)
        if piece.missing and time.monotonic() + wait_s < batch.deadline_s:
            self._sleep(wait_s)
            # A busy machine wakes up late; an error about missing time would say less than the broker's own error.
            if time.monotonic() < batch.deadline_s:
                return [piece]
        self._fail(batch, {n: outcomes[n] for n in piece.missing})
        return ()

    def _after_refusal(
        self, batch: ProducerBatch, piece: BatchPart, results: Sequence[ItemResult]
    ) -> Sequence[BatchPart]:
        """Return the pieces to send after the broker refused an event and stored none: the events that it aborted."""
        outcomes = dict(zip(piece.indexes, results, strict=True))
        aborted = [n for n, result in outcomes.items() if result.publishing_status == "aborted"]
        if len(aborted) == len(outcomes):
            self._fail(batch, outcomes)
            return ()
        self._fail(batch, {n: result for n, result in outcomes.items() if result.publishing_status == "failed"})
        return [BatchPart(aborted)] if aborted else ()

    def _fail(self, batch: ProducerBatch, results: Mapping[int, ItemResult]) -> None:
        for n, result in results.items():
            batch.errors[n] = EventFailed(self._event_type, batch.events[n], result)


def _is_about_events(ex: Problem) -> bool:
    """Whether fewer events may be accepted."""
    return isinstance(ex, TooLarge) or _UNREADABLE_EVENT in ex.detail
