"""Appends a batch exactly once across timelines, even if its event type has moved to another storage.

A store only knows what it has stored itself, so before an append the other stores are checked for duplicates. The
result stays valid: either their topics are closed for good, or the append is rejected as too late and the check
repeated.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from rioni.domain.errors import IdempotencyKeyReused, TopicClosed
from rioni.domain.ports.event_store import Appended, EventStore, IdempotencyClaim
from rioni.domain.publishing.headers import Headers


T = TypeVar("T")


def is_duplicate(claim: IdempotencyClaim, stores: Collection[EventStore]) -> bool:
    """Whether a batch was stored under its idempotency key in any of the given stores.

    Raises:
        IdempotencyKeyReused: another batch was stored under that key.
        Unavailable: a store can't be queried.
    """
    digests = {store.claimed(claim.id) for store in stores} - {None}
    if digests - {claim.digest}:
        raise IdempotencyKeyReused
    return bool(digests)


def append_deduplicated(
    store: EventStore,
    topic: str,
    batches: Mapping[int, Sequence[bytes]],
    *,
    headers: Mapping[int, Sequence[Headers]] | None = None,
    ids: Mapping[int, Sequence[str]] | None = None,
    claim: IdempotencyClaim | None = None,
    others: Collection[EventStore] = (),
) -> Appended:
    """Append what neither this store nor any of the others has stored before; see `EventStore.append`.

    Args:
        store: where the topic is.
        topic: of the active timeline.
        batches: the events, by partition.
        headers: stored beside them.
        ids: of the events.
        claim: idempotency key and digest of the batch.
        others: the stores of the event type's other timelines.
    """
    if claim is not None and is_duplicate(claim, others):
        return _all_left_out(batches)
    known = _known(ids, others) if ids else frozenset()
    if not known:
        return store.append(topic, batches, headers=headers, ids=ids, claim=claim)
    assert ids is not None
    kept = {
        number: [index for index in range(len(events)) if number not in ids or ids[number][index] not in known]
        for number, events in batches.items()
    }
    left = _pick(batches, kept)
    if not left:
        return _all_left_out(batches)
    appended = store.append(topic, left, headers=headers and _pick(headers, kept), ids=_pick(ids, kept), claim=claim)
    appended.left_out += sum(map(len, batches.values())) - sum(map(len, left.values()))
    return appended


class RemainingBatch:
    """A batch, or the rest of it: a topic that is being closed may store a part, and the next topic gets the rest."""

    def __init__(
        self,
        batches: Mapping[int, Sequence[bytes]],
        headers: Mapping[int, Sequence[Headers]] | None,
        ids: Mapping[int, Sequence[str]] | None,
    ) -> None:
        self.batches, self._headers, self._ids = batches, headers, ids
        self.begun = False
        """Whether a part has been stored."""

    def append(
        self, store: EventStore, topic: str, claim: IdempotencyClaim | None, others: Collection[EventStore]
    ) -> Appended:
        """Append what is left; see `append_deduplicated`."""
        try:
            return append_deduplicated(
                store, topic, self.batches, headers=self._headers, ids=self._ids, claim=claim, others=others
            )
        except TopicClosed as ex:
            self._drop(ex.stored)
            raise

    def _drop(self, stored: Mapping[int, int]) -> None:
        if any(stored.values()):
            self.begun = True
            kept = {number: range(stored.get(number, 0), len(events)) for number, events in self.batches.items()}
            self.batches = _pick(self.batches, kept)
            self._headers = self._headers and _pick(self._headers, kept)
            self._ids = self._ids and _pick(self._ids, kept)


def _known(ids: Mapping[int, Sequence[str]], stores: Collection[EventStore]) -> frozenset[str]:
    asked = [each for some in ids.values() for each in some]
    return frozenset().union(*(store.known_ids(asked) for store in stores))


def _pick(values: Mapping[int, Sequence[T]], kept: Mapping[int, Sequence[int]]) -> dict[int, list[T]]:
    picked = {number: [each[index] for index in kept[number]] for number, each in values.items()}
    return {number: each for number, each in picked.items() if each}


def _all_left_out(batches: Mapping[int, Sequence[bytes]]) -> Appended:
    appended = Appended()
    appended.left_out = sum(map(len, batches.values()))
    return appended
