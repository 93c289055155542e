"""Enriches an event's metadata with members of the broker, without changing any other byte.

Source: reference publishing#enrichment, common#content-types.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from rioni.domain.publishing.results import Events, StepFailed
from rioni.domain.publishing.rules import Publication, PublishRules


class EnrichmentError(ValueError):
    """An event has no metadata object."""


def enrich(
    events: Sequence[bytes],
    values: Events,
    partitions: Sequence[int],
    rules: PublishRules,
    publication: Publication,
) -> Sequence[bytes]:
    """The events of a batch with their metadata completed.

    Args:
        events: their JSON.
        values: the same decoded.
        partitions: for each event its partition.
        rules: the rules of the event type.
        publication: the other data of the request.

    Raises:
        StepFailed: an event has no metadata; can't happen to validated events.
    """
    enrichment = Enrichment(rules.name, rules.schema_version, publication)
    metadata = [value.get("metadata") for value in values]
    if _are_plain(events, metadata):
        return enrichment.enrich_plain(events, partitions)
    enriched: list[bytes] = []
    try:
        # PERF: extend runs in C, and keeps the items added before an exception.
        enriched.extend(map(enrichment.enrich, events, metadata, partitions))
    except EnrichmentError as ex:
        raise StepFailed("enriching", len(enriched), str(ex)) from ex
    return enriched


class Enrichment:
    """Enriches the events of one batch.

    PERF: 0.4 µs for an event of 200 bytes whose metadata has only the members it must have, 2-4 µs for others.
    """

    def __init__(self, event_type: str, version: str, publication: Publication) -> None:
        """Prepare the members.

        Args:
            event_type: the event type's name.
            version: the version of its schema.
            publication: its flow id and span context are for events without one of their own.
        """
        self._members: dict[str, Any] = {
            "published_by": publication.publisher,
            "received_at": publication.received_at,
            "event_type": event_type,
            "flow_id": publication.flow_id,
            "partition": "",
            "version": version,
        }
        if publication.span_ctx:
            self._members["span_ctx"] = publication.span_ctx
        self._additions: dict[tuple[int, frozenset[str]], bytes] = {}
        """Cached additions, by partition and kept members."""

    def enrich(self, event: bytes, metadata: Any, partition: int) -> bytes:
        """The event with its metadata completed.

        Args:
            event: its JSON, valid by its effective schema.
            metadata: the decoded member `metadata`.
            partition: the number of the event's partition.

        Raises:
            EnrichmentError: the metadata is not an object.
        """
        if not isinstance(metadata, dict):
            raise EnrichmentError("enrichment error")
        start, end = _metadata_span(event)
        present = self._members.keys() & metadata.keys()
        kept = frozenset(name for name in present if self._is_right(name, metadata[name], partition))
        if stale := present - kept:
            event, end = _without(event, start, end, stale)
        addition = self._additions.get((partition, kept)) or self._addition(partition, kept)
        if not metadata or event[end - 2] == _OPENING_BRACE:  # nothing stands before the first addition
            addition = addition[1:]
        return event[: end - 1] + addition + event[end - 1 :]

    def enrich_plain(self, events: Sequence[bytes], partitions: Sequence[int]) -> list[bytes]:
        """Complete the metadata of events for which `_are_plain` is true; `partitions` has the partition of each."""
        additions = {partition: self._addition(partition, _NONE) for partition in set(partitions)}
        enriched = []
        for event, partition in zip(events, partitions, strict=True):
            # Neither an eid nor a time has a brace: the next one ends the metadata.
            end = event.index(b"}", event.index(_METADATA))
            enriched.append(event[:end] + additions[partition] + event[end:])
        return enriched

    def _is_right(self, name: str, value: Any, partition: int) -> bool:
        """Whether a member of the publisher is kept, as a flow id and a span context are."""
        if name == "flow_id":
            return isinstance(value, str) and value != ""
        if name == "span_ctx":
            return True
        return bool(value == (str(partition) if name == "partition" else self._members[name]))

    def _addition(self, partition: int, kept: frozenset[str]) -> bytes:
        """The members to add, all except the kept ones, each preceded by a comma."""
        members = {**self._members, "partition": str(partition)}
        encoded = msgspec.json.encode({name: value for name, value in members.items() if name not in kept})
        addition = self._additions[partition, kept] = b"," + encoded[1:-1] if len(kept) < len(members) else b""
        return addition


_METADATA = b'"metadata"'
_REQUIRED = frozenset({"eid", "occurred_at"})
_NONE: frozenset[str] = frozenset()
_OPENING_BRACE = ord("{")


def _are_plain(events: Sequence[bytes], metadata: Sequence[Any]) -> bool:
    """Whether the name `metadata` occurs once in each event, and the member has only its required members."""
    text = b"".join(events)
    # Without escapes the name stands in each event as it is.
    if b"\\" in text or text.count(_METADATA) != len(events):
        return False
    return all(isinstance(each, dict) and each.keys() == _REQUIRED for each in metadata)


class _Head(msgspec.Struct):
    metadata: msgspec.Raw


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NAME = re.compile(rb'[{\s,]*("(?:[^"\\]|\\.)*")\s*:\s*')


def _place_of_name(event: bytes) -> int:
    r"""The index of the name of the member `metadata`; -1 if only a parser can find it.

    A name that occurs once is the member's, unless that is written in another way: with an escape for one of its
    letters, which all begin with `\u006` or `\u007`.
    """
    place = event.find(_METADATA)
    if event.find(_METADATA, place + 1) >= 0 or (b"\\" in event and (b"\\u006" in event or b"\\u007" in event)):
        return -1
    return place


def _metadata_span(event: bytes) -> tuple[int, int]:
    """The start and end indexes of the value of the member `metadata`."""
    if (name := _place_of_name(event)) >= 0:
        start = event.index(b"{", name)
        return start, start + len(_decode_head(event).metadata)
    end = 0
    for value in _decode_members(event).values():
        match = _NAME.match(event, end)
        assert match is not None, "every value has a name"
        start, end = match.end(), match.end() + len(value)
        if json.loads(match[1]) == "metadata":
            break
    return start, end


def _without(event: bytes, start: int, end: int, stale: set[str]) -> tuple[bytes, int]:
    """Remove members of the metadata; return the event and the new end of its metadata."""
    members = _decode_members(event[start:end])
    metadata = msgspec.json.encode({name: value for name, value in members.items() if name not in stale})
    return event[:start] + metadata + event[end:], start + len(metadata)
