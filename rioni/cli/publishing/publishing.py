"""Publishes batches: completes the metadata of events, and says which ones were refused."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from rioni.client import BadRequest, ClientError, Problem, PublishingFailed, TooLarge, Unprocessable, metadata
from rioni.domain.errors import Invalid


# --- Completes the metadata of events before they are published, and removes what only the broker may set ---

SET_BY_BROKER = frozenset({"published_by", "received_at", "version"})
"""Members that brokers refuse in events, although delivered events have them."""

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class Completion:
    """Completes events of one event type.

    Args:
        event_type: the name.
        key: the path of the member that becomes `metadata.partition_compaction_key`.
        partition: becomes `metadata.partition`.
        removed: further members of the metadata that are removed.
        new: which members a new event gets; by default a random `eid`, and the present time as `occurred_at`.
    """

    def __init__(
        self,
        event_type: str,
        *,
        key: str | None = None,
        partition: str | None = None,
        removed: Collection[str] = (),
        new: Callable[[], Mapping[str, Any]] = metadata,
    ) -> None:
        self._event_type, self._new = event_type, new
        self._removed = SET_BY_BROKER.union(removed)
        self._key = key.split(".") if key else None
        self._fixed = {} if partition is None else {"partition": partition}

    def complete(self, event: bytes, new: Mapping[str, Any] | None = None) -> bytes:
        """The event with `eid` and `occurred_at`; all members but `metadata` stay as they are.

        Args:
            event: a JSON object.
            new: the values that it gets if they are missing; by default as for all events.

        Raises:
            Invalid: the event has no key, though there has to be one.
        """
        added = dict(self._fixed)
        new = self._new() if new is None else new
        if self._key is not None:
            added["partition_compaction_key"] = _key_of(event, self._key)
        # Bytes that do not contain the word can't have the member.
        members = _decode(event) if b'"metadata"' in event or b"\\u" in event else {}
        given = members.get("metadata")
        if given is None:
            inner = event.strip()[1:-1].strip()
            return b'{"metadata":' + _encode({**new, **added}) + (b"," if inner else b"") + inner + b"}"
        if not bytes(given).startswith(b"{"):
            return event  # the broker reports what is wrong with it
        return self._with(event, members, _decode(given), new, added)

    def _with(
        self,
        event: bytes,
        members: dict[str, msgspec.Raw],
        given: dict[str, msgspec.Raw],
        new: Mapping[str, Any],
        added: Mapping[str, Any],
    ) -> bytes:
        stale = given.keys() & self._removed
        named = given.get("event_type")
        if named is not None and msgspec.json.decode(named) != self._event_type:
            stale.add("event_type")
        if not stale and not added and {"eid", "occurred_at"} <= given.keys():
            return event
        kept = {name: value for name, value in given.items() if name not in stale}
        completed = _encode({**new, **kept, **added})
        return _encode({**members, "metadata": msgspec.Raw(completed)})


def _key_of(event: bytes, path: list[str]) -> str:
    value = msgspec.json.decode(event)
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if value is None or value == "" or isinstance(value, dict | list):
        raise Invalid(f"it has no key: {'.'.join(path)} is missing, or no text or number")
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# --- Publishes batches whose events may be refused: reports which ones, and stores the others in their order ---

BATCH_BYTES_MAX = 4_000_000
"""Events of a batch; brokers and proxies refuse large bodies."""

_PARTLY = "publishing"
"""The step of results if some events are stored and others not, or perhaps not."""
_STORED_BEFORE = "Idempotency-Key: another batch was stored under this key"


class Refusal(NamedTuple):
    """An event that the broker refused."""

    number: int
    """The place of the event in the batch, from 0."""
    step: str
    reason: str


class Outcome(NamedTuple):
    """The outcome of a batch.

    Args:
        stored: how many events are stored, or were before.
        refused: the others; if it was to stop, only the first one, and nothing after it is stored.
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

        Brokers refuse a batch as a whole and name the first event at fault. So the events before it are published by
        themselves, then the events after it.

        Args:
            events: their JSON, with metadata.
            key: the idempotency key.

        Raises:
            ClientError: there is no answer for as long as `send` tries, or a refusal that is not about the events.
        """
        stored = 0
        refused: list[Refusal] = []
        # The parts still to be published, the last one first, and the known refusals between them.
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
        """Return the refusal, without a reason if the batch is to be divided; None if all events are stored."""
        try:
            self._send(events, key)
        except PublishingFailed as ex:
            refusal = _first(ex)
            if refusal.step == _PARTLY:
                raise  # no event is at fault
            return refusal
        except (BadRequest, TooLarge) as ex:
            # One of the events is at fault, or all together are too much: the broker does not report which.
            return Refusal(len(events) // 2, "validating", explanation(ex) if len(events) == 1 else "")
        except Unprocessable as ex:
            if not (self._repeats and ex.detail.startswith(_STORED_BEFORE)):
                raise
        return None


def _first(ex: PublishingFailed) -> Refusal:
    """The first event that failed; raises the error if the broker names none."""
    for index, result in enumerate(ex.results):
        if result.publishing_status == "failed":
            return Refusal(index, result.step, result.detail or "no reason given")
    raise ex


def explanation(ex: ClientError) -> str:
    """The reason of a broker's refusal, without the request."""
    return f"{ex.title}: {ex.detail}" if isinstance(ex, Problem) and ex.detail else str(ex)
