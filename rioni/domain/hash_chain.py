"""Hash chain over the internal log: detects changed, missing and moved entries.

The hash of an entry is SHA-256 over the hash of the entry before it (32 zero bytes for the first) followed by the
entry's fields in this order: position, stream, version, topic, recorded_at, actor, client, flow_id, command_id, data.
Each field is its length in bytes as 4 bytes, big-endian, and then the field: numbers in decimal, text in UTF-8, data as
it is stored. Anyone can compute it again, in any language.
"""

from hashlib import sha256
from struct import Struct
from typing import NamedTuple


GENESIS = bytes(32)
"""The predecessor hash of the first entry."""

Fields = tuple[int, str, int, str, str, str, str, str, str, bytes]
"""position, stream, version, topic, recorded_at, actor, client, flow_id, command_id, data."""

_length = Struct(">I").pack


def link(previous: bytes, fields: Fields) -> bytes:
    """The hash of an entry.

    Args:
        previous: the hash of the entry before it.
        fields: the entry, as stored in the log.
    """
    data = fields[-1]
    return sha256(b"".join((previous, framed(fields), _length(len(data)), data))).digest()


def framed(fields: Fields) -> bytes:
    """Return all fields of an entry except its data, each preceded by its length.

    Raises:
        UnicodeEncodeError: a damaged field is not valid Unicode.
    """
    position, stream, version, topic, recorded_at, actor, client, flow_id, command_id, _ = fields
    try:
        # PERF: 1.4 µs; a loop takes 2.2 µs.
        a, b, c = str(position).encode(), stream.encode(), str(version).encode()
        d, e, f = topic.encode(), recorded_at.encode(), actor.encode()
        g, h, i = client.encode(), flow_id.encode(), command_id.encode()
    except AttributeError:
        # A damaged field is not text.
        a, b, c, d, e, f, g, h, i = (str(field).encode() for field in fields[:-1])
    size = _length
    numbered = (size(len(a)), a, size(len(b)), b, size(len(c)), c)
    described = (size(len(d)), d, size(len(e)), e, size(len(f)), f)
    sent = (size(len(g)), g, size(len(h)), h, size(len(i)), i)
    return b"".join(numbered + described + sent)


def follows(previous: bytes, fields: Fields, stored: bytes) -> bool:
    """Whether an entry was written directly after the given predecessor.

    Args:
        previous: the hash of the entry before it.
        fields: the entry, as it is stored now; damaged fields may be of other types, and text not valid Unicode.
        stored: its hash, as it is stored now.
    """
    try:
        return link(previous, fields) == stored
    except (UnicodeEncodeError, TypeError):
        return False


class LogHead(NamedTuple):
    """The head of the log: the last position, 0 if the log is empty, and its hash."""

    position: int
    hash: bytes
