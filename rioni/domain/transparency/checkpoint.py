"""Checkpoints of the log as text (C2SP tlog-checkpoint), the leaves of its tree, and cosignatures of witnesses."""

import base64
import binascii
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol

from rioni.domain.errors import Malformed
from rioni.domain.hash_chain import Fields, framed
from rioni.domain.transparency.merkle_tree import HASH_BYTES


# Checkpoints: size and root of the log's Merkle tree as text (C2SP tlog-checkpoint), and the leaves of the tree.

_DIGEST_LENGTH = HASH_BYTES.to_bytes(4)
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")


class Checkpoint(NamedTuple):
    """The state of a log."""

    origin: str
    """The name of the log."""
    size: int
    """The number of entries, and so the position of the last one."""
    root: bytes
    """The root of the tree over them."""
    extensions: tuple[str, ...] = ()
    """Further lines."""

    def __str__(self) -> str:
        lines = (self.origin, str(self.size), base64.b64encode(self.root).decode(), *self.extensions)
        return "".join(f"{line}\n" for line in lines)


def parse_checkpoint(text: str) -> Checkpoint:
    """Read the text of a checkpoint.

    Raises:
        Malformed: this is not one.
    """
    lines = text.removesuffix("\n").split("\n")
    refused = Malformed("A checkpoint has at least three lines: origin, size, and root in base64.")
    try:
        origin, size, encoded, *extensions = lines
        root = base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error) as ex:
        raise refused from ex
    if not origin or not _SIZE.fullmatch(size) or len(root) != HASH_BYTES or "" in extensions:
        raise refused
    checkpoint = Checkpoint(origin, int(size), root, tuple(extensions))
    if str(checkpoint) != text:
        raise refused
    return checkpoint


def leaf(fields: Fields) -> bytes:
    """Return the leaf of an entry of the log in the tree: everything but the data, which its SHA-256 replaces.

    The fields are in the order of `rioni.domain.hash_chain`, each after its length as four bytes, big-endian:
    numbers in decimal, text in UTF-8, the digest as 32 bytes.

    Raises:
        UnicodeEncodeError: a damaged field is not valid Unicode.
    """
    return framed(fields) + _DIGEST_LENGTH + sha256(fields[-1]).digest()


# --- Cosignatures of witnesses: the newest of each, and the port that keeps them ---

WITNESSES_MAX = 16


class Cosignature(NamedTuple):
    """A witness has seen a checkpoint that extends the one that it saw before."""

    witness: str
    """The name of its key."""
    size: int
    """The size of the tree."""
    text: str
    """The text of the checkpoint."""
    signature: str
    """The line of the signed note."""


class Cosignatures(Protocol):
    """Keeps the newest cosignature of each witness. Calls block on the database; all raise Unavailable."""

    def add(self, cosignature: Cosignature) -> None:
        """Keep a cosignature, replacing an older one; one of a smaller tree changes nothing."""

    def all(self) -> Sequence[Cosignature]:
        """Return the newest one of each witness, by name."""
