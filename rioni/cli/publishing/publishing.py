"""Publishes batches whose events may be refused: says which ones, and stores the others in their order."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rioni.client import BadRequest, ClientError, Problem, PublishingFailed, TooLarge, Unprocessable


BATCH_BYTES_MAX = 4_000_000
"""Events of a batch; brokers and proxies refuse large bodies."""

_PARTLY = "publishing"
"""The step of results where some events are stored and others not, or perhaps not."""
_STORED_BEFORE = "Idempotency-Key: another batch was stored under this key"


class Refusal(NamedTuple):
    """An event that the broker refused."""

    number: int
    """Its place in the batch, from 0."""
    step: str
    reason: str


class Outcome(NamedTuple):
    """What became known of a batch.

    Args:
        stored: how many events are stored, or were before.
        refused: the others; where it was to stop, only the first one, and nothing behind it is stored.
    """

    stored: int
    refused: Sequence[Refusal]


Send = Callable[[Sequence[bytes], str], object]
"""Publishes events under an idempotency key; tries again, and raises, as `Client.publish` does."""


class BatchPublisher:
    """Publishes batches.

    Args:
        send: publishes events.
        repeats: whether the key is made from what the batch consists of. Then a batch that was stored under it is this
            one, even if the time in its metadata is another.
        stop: whether to stop at the first event that is refused.
    """

    def __init__(self, send: Send, *, repeats: bool = False, stop: bool = True) -> None:
        self._send, self._repeats, self._stop = send, repeats, stop

    def publish(self, events: Sequence[bytes], key: str) -> Outcome:
        """Publish a batch; blocks until its outcome is known.

        Brokers refuse a batch as a whole and name the first event at fault. So what stands before that is published by
        itself, then what stands behind it.

        Args:
            events: their JSON, with metadata.
            key: the idempotency key.

        Raises:
            ClientError: there is no answer for as long as `send` tries, or a refusal that is not about the events.
        """
        stored = 0
        refused: list[Refusal] = []
        # What is still to be published, the last one first, and what is known to be refused in between.
        todo: list[tuple[int, int] | Refusal] = [(0, len(events))]
        while todo:
            match todo.pop():
                case Refusal() as refusal:
                    refused.append(refusal)
                    if self._stop:
                        break
                case (start, end) if start < end:
                    answer = self._try(events[start:end], key if end - start == len(events) else f"{key}/{start}-{end}")
                    if answer is None:
                        stored += end - start
                    elif answer.reason:
                        index = start + answer.number
                        todo += [(index + 1, end), answer._replace(number=index), (start, index)]
                    else:
                        middle = start + answer.number
                        todo += [(middle, end), (start, middle)]
        return Outcome(stored, refused)

    def _try(self, events: Sequence[bytes], key: str) -> Refusal | None:
        """What was refused; without a reason, where the batch is to be divided; None if all events are stored."""
        try:
            self._send(events, key)
        except PublishingFailed as ex:
            refusal = _first(ex)
            if refusal.step == _PARTLY:
                raise  # no event is at fault
            return refusal
        except (BadRequest, TooLarge) as ex:
            # One of the events is at fault, or all together are too much: the broker does not say which.
            return Refusal(len(events) // 2, "validating", explanation(ex) if len(events) == 1 else "")
        except Unprocessable as ex:
            if not (self._repeats and ex.detail.startswith(_STORED_BEFORE)):
                raise
        return None


def _first(ex: PublishingFailed) -> Refusal:
    """The first event that failed; raises the error where the broker names none."""
    for index, result in enumerate(ex.results):
        if result.publishing_status == "failed":
            return Refusal(index, result.step, result.detail or "no reason given")
    raise ex


def explanation(ex: ClientError) -> str:
    """Why a broker refused, without the request."""
    return f"{ex.title}: {ex.detail}" if isinstance(ex, Problem) and ex.detail else str(ex)
