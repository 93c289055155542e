"""Sends a batch of a producer, in whole or in pieces, until each of its events is stored or has failed."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rioni.client import encoding
from rioni.client._sync.delivery import Piece, ProducerBatch
from rioni.client._sync.publishing import Publishing
from rioni.client.errors import BadRequest, ClientError, EventFailed, Problem, PublishingFailed, TooLarge
from rioni.client.retries import backoff_s
from rioni.wire.events import ItemResult


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
        batch.pieces = [Piece(range(len(batch.events)))]
        while batch.pieces:
            again = self._send_piece(batch, batch.pieces[0])
            batch.pieces = [*again, *batch.pieces[1:]]

    def _send_piece(self, batch: ProducerBatch, piece: Piece) -> Sequence[Piece]:
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
                return [Piece(piece.indexes[:middle]), Piece(piece.indexes[middle:])]
            batch.fail(piece.missing, ex)
        except ClientError as ex:
            batch.fail(piece.missing, ex)
        return ()

    def _after_partial(self, batch: ProducerBatch, piece: Piece, results: Sequence[ItemResult]) -> Sequence[Piece]:
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

    def _after_refusal(self, batch: ProducerBatch, piece: Piece, results: Sequence[ItemResult]) -> Sequence[Piece]:
        """Return the pieces to send after the broker refused an event and stored none: the events that it aborted."""
        outcomes = dict(zip(piece.indexes, results, strict=True))
        aborted = [n for n, result in outcomes.items() if result.publishing_status == "aborted"]
        if len(aborted) == len(outcomes):
            self._fail(batch, outcomes)
            return ()
        self._fail(batch, {n: result for n, result in outcomes.items() if result.publishing_status == "failed"})
        return [Piece(aborted)] if aborted else ()

    def _fail(self, batch: ProducerBatch, results: Mapping[int, ItemResult]) -> None:
        for n, result in results.items():
            batch.errors[n] = EventFailed(self._event_type, batch.events[n], result)


def _is_about_events(ex: Problem) -> bool:
    """Whether fewer events may be accepted."""
    return isinstance(ex, TooLarge) or _UNREADABLE_EVENT in ex.detail
