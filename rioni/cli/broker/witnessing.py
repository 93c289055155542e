"""A witness of a broker's log: cosigns a checkpoint only if the log extends the one that it has seen before.

The state is a separate file: the verifier key of the log, and the last checkpoint that was seen.
"""

import base64
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rioni.client import Client, Conflict, Forbidden, Unprocessable
from rioni.domain.errors import Invalid, Malformed, RioniError, Unavailable
from rioni.domain.transparency.checkpoint import (
    Checkpoint,
    Note,
    Verifier,
    cosign,
    parse_checkpoint,
    parse_note,
    parse_verifier,
    verified,
)
from rioni.domain.transparency.log_keys import LogKey, successors
from rioni.domain.transparency.merkle_tree import EMPTY_ROOT, InvalidProof, verify_consistency
from rioni.files.locks import open_lock, try_lock
from rioni.files.plain import edited, read_file


KEYS_MAX = 10_000


class WitnessState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state that a witness remembers."""

    log_key: str
    """The verifier key of the log."""
    checkpoint: str
    """The last checkpoint, as a signed note with the cosignature."""


class Seen(NamedTuple):
    """The outcome of a round."""

    before: int
    """The size of the log when it was seen last; 0 at the first time."""
    checkpoint: Checkpoint
    note: Note
    """The checkpoint with the cosignature, as a signed note."""
    accepted: bool
    """Whether the broker has accepted the cosignature."""
    new_key: str | None = None
    """The verifier key of the log, if it was changed since; keys before have signed it."""


class ForkedLog(RioniError):
    """The log does not extend the checkpoint that was seen before. Nothing was cosigned."""


def witness(client: Client, file: Path, name: str, key: Ed25519PrivateKey, log_key: str | None) -> Seen:
    """Fetch the checkpoint of a broker, check it against the last one, cosign it, and send the cosignature.

    Args:
        client: of the broker.
        file: with the state; made at the first time.
        name: of the witness.
        key: of the witness.
        log_key: a verifier key of the log, which signs, or which keys that sign now follow by signatures; None for that
            of the state, or, at the first time, the one that the broker names.

    Raises:
        ForkedLog: the log was cut, changed, or is another one.
        Malformed: a signature is wrong, or what the broker answers or the state holds can't be read.
        Unavailable: the state can't be read or written.
        ClientError: the broker does not answer as it should.
    """
    with _alone(file):
        return _round(client, file, name, key, log_key)


@contextlib.contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Keep other processes out: two that use one state could cosign two forks."""
    path = file.with_name(f".{file.name}-lock")
    try:
        held = open_lock(path)
    except OSError as ex:
        raise Unavailable(f"{path} can't be written: {ex.strerror}") from ex
    with held:
        if not try_lock(held.fileno()):
            raise Unavailable(f"Another witness uses {file}.")
        yield


def _round(client: Client, file: Path, name: str, key: Ed25519PrivateKey, log_key: str | None) -> Seen:
    state = _read(file)
    known = log_key or (state.log_key if state else client.log.key())
    note = parse_note(client.log.checkpoint().encode())
    checkpoint = parse_checkpoint(note.text)
    verifier = _signer(client, note, parse_verifier(known))
    if checkpoint.origin != verifier.name:
        raise Malformed(f"The checkpoint of {client.url} is one of {checkpoint.origin}, and signed by {verifier.name}.")
    before = parse_checkpoint(parse_note(state.checkpoint.encode()).text) if state else None
    if before is not None:
        _check(client, before, checkpoint)
    cosignature = cosign(note.text, name, key, int(time.time()))
    signed = Note(note.text, (*(each for each in note.signatures if each.name == verifier.name), cosignature))
    _write(file, WitnessState(str(verifier), str(signed)))
    accepted = True
    try:
        client.log.cosign(str(signed))
    except (Forbidden, Conflict, Unprocessable):
        accepted = False
    return Seen(
        before.size if before else 0,
        checkpoint,
        signed,
        accepted=accepted,
        new_key=None if str(verifier) == known else str(verifier),
    )


def _signer(client: Client, note: Note, known: Verifier) -> Verifier:
    """The key that has signed a note: the known one, or the last one that follows it by signatures."""
    if known in verified(note, [known]):
        return known
    keys = client.log.keys()
    if len(keys) > KEYS_MAX:
        raise Malformed(f"The broker at {client.url} has {len(keys):,} keys; there are at most {KEYS_MAX:,}.")
    *_, last = successors(known, [LogKey(parse_verifier(each.verifier), each.signature) for each in keys])
    if last not in verified(note, [last]):
        raise Malformed(
            f"The checkpoint of {client.url} is not signed by {last}, nor by a key that this one has signed. If the "
            "operators of the broker say that they have lost the key, name the new one: --log-key."
        )
    return last


def _check(client: Client, before: Checkpoint, now: Checkpoint) -> None:
    if before.origin != now.origin:
        raise ForkedLog(f"This is another log: {now.origin}, and it was {before.origin}.")
    if now.size < before.size:
        raise ForkedLog(f"The log had {before.size} entries and has {now.size} now: it was cut.")
    hashes: list[bytes] = []
    if 0 < before.size < now.size:
        hashes = [_decoded(each) for each in client.log.consistency(before.size, second=now.size).hashes]
    try:
        if before.size:
            verify_consistency(before.size, now.size, before.root, now.root, hashes)
        elif before.root != EMPTY_ROOT:
            raise InvalidProof("The empty log has another root.")
    except Invalid as ex:
        raise ForkedLog(f"The log of {now.size} entries does not extend the one of {before.size}: {ex}") from ex


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as ex:
        raise Malformed(f"{text[:100]!r} is not a hash in base64.") from ex


def _read(file: Path) -> WitnessState | None:
    try:
        return msgspec.json.decode(read_file(file), type=WitnessState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as ex:
        raise Unavailable(f"{file} can't be read as the state of a witness: {ex}") from ex


def _write(file: Path, state: WitnessState) -> None:
    try:
        with edited(file) as written:
            written.text = msgspec.json.encode(state).decode()
    except OSError as ex:
        raise Unavailable(f"{file} can't be written: {ex.strerror}") from ex
