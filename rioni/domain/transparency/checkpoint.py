"""Checkpoints of the log as signed notes (C2SP), the leaves of its tree, and cosignatures of witnesses."""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

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


# --- Signed notes (C2SP signed-note) with Ed25519, and cosignatures of witnesses (C2SP tlog-cosignature) ---
#
# A note is a text whose lines end with a newline, an empty line, and one line for each signature.

ED25519 = 1
COSIGNATURE = 4
"""The kinds of signatures; a cosignature also states when it was made."""

NOTE_BYTES_MAX = 100_000
SIGNATURES_MAX = 100
NAME_CHARACTERS_MAX = 200

_KEY_BYTES = 32
_ID_BYTES = 4
_TIME_BYTES = 8
_DASH = "— "


class Verifier(NamedTuple):
    """A public key and its name."""

    name: str
    kind: int
    """`ED25519` or `COSIGNATURE`."""
    key: bytes
    """32 bytes."""

    @property
    def id(self) -> bytes:
        """The four bytes that mark the signatures of the key."""
        return sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.key).digest()[:_ID_BYTES]

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{base64_text(bytes([self.kind]) + self.key)}"


class Signature(NamedTuple):
    """A line with a signature."""

    name: str
    id: bytes
    """The id of the key."""
    data: bytes

    def __str__(self) -> str:
        return f"{_DASH}{self.name} {base64_text(self.id + self.data)}"


class Note(NamedTuple):
    """A text and its signatures."""

    text: str
    """Ends with a newline."""
    signatures: Sequence[Signature] = ()

    def __str__(self) -> str:
        return f"{self.text}\n" + "".join(f"{each}\n" for each in self.signatures)


def parse_verifier(text: str) -> Verifier:
    """Read a verifier key, `name+id+key`.

    Raises:
        Malformed: this is not one, or not of a kind that is known here.
    """
    name, _, rest = text.strip().partition("+")
    key_id, _, key = rest.partition("+")
    data = _bytes(key, "the key")
    if len(data) != 1 + _KEY_BYTES or data[0] not in {ED25519, COSIGNATURE}:
        raise Malformed(f"{text[:100]!r} is not a verifier key of Ed25519: name+id+key.")
    verifier = Verifier(_checked_name(name), data[0], data[1:])
    if verifier.id.hex() != key_id:
        raise Malformed(f"The id in the verifier key {text[:100]!r} does not belong to its name and key.")
    return verifier


def verifier_of(name: str, key: Ed25519PrivateKey, kind: int = ED25519) -> Verifier:
    """Return the public half of a key.

    Raises:
        Malformed: the name can't be that of a key.
    """
    return Verifier(_checked_name(name), kind, key.public_key().public_bytes_raw())


def sign(text: str, name: str, key: Ed25519PrivateKey) -> Signature:
    """Sign a text that ends with a newline."""
    return Signature(name, verifier_of(name, key).id, key.sign(text.encode()))


def cosign(text: str, name: str, key: Ed25519PrivateKey, time_s: int) -> Signature:
    """Sign a checkpoint as a witness, with the time in seconds since 1970."""
    signature = key.sign(_cosigned(text, time_s))
    return Signature(name, verifier_of(name, key, COSIGNATURE).id, time_s.to_bytes(_TIME_BYTES) + signature)


def parse_note(data: bytes) -> Note:
    """Read a note; its signatures are not verified.

    Raises:
        Malformed: this is not a note.
    """
    if len(data) > NOTE_BYTES_MAX:
        raise Malformed(f"A signed note has at most {NOTE_BYTES_MAX:,} bytes.")
    try:
        whole = data.decode()
    except UnicodeDecodeError as ex:
        raise Malformed("A signed note is text in UTF-8.") from ex
    if any(ord(each) < ord(" ") and each != "\n" for each in whole):
        raise Malformed("A signed note has no control characters but newlines.")
    text, separator, signatures = whole.rpartition("\n\n")
    if not separator or not signatures.endswith("\n"):
        raise Malformed("A signed note is a text, an empty line, and lines with signatures.")
    lines = signatures[:-1].split("\n")
    if len(lines) > SIGNATURES_MAX:
        raise Malformed(f"A signed note has at most {SIGNATURES_MAX} signatures.")
    return Note(f"{text}\n", tuple(map(_parse_signature, lines)))


def verified(note: Note, verifiers: Sequence[Verifier]) -> Mapping[Verifier, int | None]:
    """Verify the signatures of a note that known keys have made; those of other keys are ignored.

    Returns:
        The keys that signed it; for cosignatures with the time in seconds since 1970, else None.

    Raises:
        Malformed: a signature with name and id of a known key is not valid.
    """
    known = {(each.name, each.id): each for each in verifiers}
    found: dict[Verifier, int | None] = {}
    for signature in note.signatures:
        verifier = known.get((signature.name, signature.id))
        if verifier is not None:
            found[verifier] = _verify(note.text, signature, verifier)
    return found


def _verify(text: str, signature: Signature, verifier: Verifier) -> int | None:
    data, time_s, message = signature.data, None, text.encode()
    if verifier.kind == COSIGNATURE:
        time_s, data = int.from_bytes(data[:_TIME_BYTES]), data[_TIME_BYTES:]
        message = _cosigned(text, time_s)
    try:
        Ed25519PublicKey.from_public_bytes(verifier.key).verify(data, message)
    except InvalidSignature as ex:
        raise Malformed(f"The signature of {verifier.name} is not valid.") from ex
    return time_s


def _cosigned(text: str, time_s: int) -> bytes:
    return f"cosignature/v1\ntime {time_s}\n{text}".encode()


def _parse_signature(line: str) -> Signature:
    name, _, data = line.removeprefix(_DASH).partition(" ")
    decoded = _bytes(data, "a signature")
    if not line.startswith(_DASH) or len(decoded) <= _ID_BYTES:
        raise Malformed(f"{line[:100]!r} is not a line with a signature: — name base64.")
    return Signature(_checked_name(name), decoded[:_ID_BYTES], decoded[_ID_BYTES:])


def _checked_name(name: str) -> str:
    if not name or len(name) > NAME_CHARACTERS_MAX or "+" in name or any(each.isspace() for each in name):
        raise Malformed(f"{name[:100]!r} can't be the name of a key: it has no spaces and no plus signs.")
    return name


def base64_text(data: bytes) -> str:
    """Return bytes as text."""
    return base64.b64encode(data).decode()


def _bytes(text: str, what: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as ex:
        raise Malformed(f"{what.capitalize()} is not in base64: {text[:100]!r}.") from ex
    if base64_text(data) != text:
        raise Malformed(f"{what.capitalize()} is not in the only accepted form of base64: {text[:100]!r}.")
    return data
