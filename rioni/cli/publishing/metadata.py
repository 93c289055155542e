"""Completes the metadata of events before they are published, and removes what only the broker may set."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from rioni.client import metadata
from rioni.domain.errors import Invalid


SET_BY_BROKER = frozenset({"published_by", "received_at", "version"})
"""Brokers refuse events that have these members; what a stream delivers has them."""

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
            new: what it gets where it is missing; by default as for all events.

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
            return event  # the broker says what is wrong with it
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
