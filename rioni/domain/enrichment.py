"""Adding to an event's metadata what the broker knows, without touching any other byte (registry contract 6.4)."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec


class EnrichmentError(ValueError):
    """An event has no metadata object."""


class Enrichment:
    """What the events of one batch are enriched with.

    PERF: 1 µs for an event of 200 bytes whose metadata has only the members it must have, 3-6 µs for others.
    """

    def __init__(self, *, event_type: str, version: str, publisher: str, flow_id: str, now_ms: int) -> None:
        """Prepare the members.

        Args:
            event_type: the event type's name.
            version: the version of its schema.
            publisher: who publishes.
            flow_id: the request's, for events without one of their own.
            now_ms: when it was received, in milliseconds since the epoch.
        """
        self._members = {
            "published_by": publisher,
            "received_at": _rfc3339(now_ms),
            "event_type": event_type,
            "flow_id": flow_id,
            "partition": "",
            "version": version,
        }
        self._whole: dict[int, bytes] = {}
        """For each partition what metadata gets that has none of these members."""

    def enrich(self, event: bytes, metadata: Any, partition: int) -> bytes:
        """The event with its metadata completed.

        Args:
            event: its JSON, valid by its effective schema.
            metadata: what its member `metadata` says.
            partition: where the event goes.

        Raises:
            EnrichmentError: the metadata is not an object.
        """
        if not isinstance(metadata, dict):
            raise EnrichmentError("enrichment error")
        if metadata.keys() == _REQUIRED and b"\\" not in event:
            name = event.find(_METADATA)
            if event.find(_METADATA, name + 1) < 0:  # otherwise one of them is the metadata of something else
                # Neither an eid nor a time has a brace: the next one ends the metadata.
                end = event.find(b"}", name)
                addition = self._whole.get(partition) or self._addition(partition, _NONE)
                return event[:end] + addition + event[end:]
        start, end = _metadata_span(event)
        kept = _NONE
        if not self._members.keys().isdisjoint(metadata):
            kept = self._kept(metadata, partition)
            if stale := self._members.keys() & metadata.keys() - kept:
                event, end = _without(event, start, end, stale)
        addition = self._addition(partition, kept)
        if not metadata or event[end - 2] == _OPENING_BRACE:  # nothing stands before the first addition
            addition = addition[1:]
        return event[: end - 1] + addition + event[end - 1 :]

    def _kept(self, metadata: Mapping[str, Any], partition: int) -> frozenset[str]:
        """The members that stay as the publisher wrote them: those that are right, and any flow id."""
        wanted = {**self._members, "partition": str(partition)}
        flow_id = metadata.get("flow_id")
        if isinstance(flow_id, str) and flow_id:
            wanted["flow_id"] = flow_id
        return frozenset(name for name, value in wanted.items() if name in metadata and metadata[name] == value)

    def _addition(self, partition: int, kept: frozenset[str]) -> bytes:
        """The members that are added, all but the kept ones, each behind a comma."""
        members = {**self._members, "partition": str(partition)}
        encoded = msgspec.json.encode({name: value for name, value in members.items() if name not in kept})
        addition = b"," + encoded[1:-1] if len(kept) < len(members) else b""
        if not kept:
            self._whole[partition] = addition
        return addition


_METADATA = b'"metadata"'
_REQUIRED = frozenset({"eid", "occurred_at"})
_NONE: frozenset[str] = frozenset()
_OPENING_BRACE = ord("{")


class _Head(msgspec.Struct):
    metadata: msgspec.Raw


_HEAD = msgspec.json.Decoder(_Head)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NAME = re.compile(rb'[{\s,]*("(?:[^"\\]|\\.)*")\s*:\s*')


def _metadata_span(event: bytes) -> tuple[int, int]:
    """Where the value of the member `metadata` begins and ends."""
    # A name that occurs once, and can't be written in another way without \u00, is the member's.
    if event.count(b'"metadata"') == 1 and b"\\u00" not in event:
        start = event.index(b"{", event.index(b'"metadata"'))
        return start, start + len(_HEAD.decode(event).metadata)
    end = 0
    for value in _MEMBERS.decode(event).values():
        name = _NAME.match(event, end)
        assert name is not None, "every value has a name"
        start, end = name.end(), name.end() + len(value)
        if json.loads(name[1]) == "metadata":
            break
    return start, end


def _without(event: bytes, start: int, end: int, stale: set[str]) -> tuple[bytes, int]:
    """Remove members of the metadata; return the event and where its metadata ends now."""
    members = _MEMBERS.decode(event[start:end])
    metadata = msgspec.json.encode({name: value for name, value in members.items() if name not in stale})
    return event[:start] + metadata + event[end:], start + len(metadata)


def _rfc3339(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
