"""Signs checkpoints and makes proofs for auditors at the command line: beside a running broker or on a copy."""

import base64
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Connection

from rioni.config.settings import Config
from rioni.domain.errors import Conflict, Invalid, NotFound, Unavailable
from rioni.domain.transparency.checkpoint import Checkpoint
from rioni.domain.transparency.key_succession import SigningKey, sign_successor
from rioni.domain.transparency.merkle_tree import verify_consistency
from rioni.domain.transparency.signed_note import Note, Verifier, parse_verifier, sign, verifier_of
from rioni.files.private import private_umask
from rioni.installation.database import opened_for_reading
from rioni.installation.from_config import key_file
from rioni.installation.log_keys import known_keys
from rioni.installation.log_tree import read_checkpoint, signature_findings
from rioni.projections.log_tree import leaves
from rioni.projections.queries import log_proofs
from rioni.storage.signing_key import load_key, replace_key
from rioni.storage.sql.engines import reading


NO_KEY = "This log names no signing key yet: a broker records it soon after its start. Run `rioni serve`."


def checkpoint(config: Config) -> Note:
    """Sign the present state of the log with the broker's key, which the log already names.

    Raises:
        Unavailable: the data, or the key, does not exist or can't be read.
    """
    with _reading(config) as connection:
        return signed_checkpoint(config, connection)


def prove(config: Config, position: int) -> dict[str, Any]:
    """Return all that shows that the log has an entry: its leaf, the proof, and a signed checkpoint; as JSON.

    Raises:
        Invalid: there is no such entry.
        Unavailable: as `checkpoint`.
    """
    with _reading(config) as connection:
        size, hashes = log_proofs.inclusion(connection, position)
        (leaf,) = leaves(connection, position - 1, position)
        return {
            "position": position,
            "leaf": _text(leaf),
            "size": size,
            "hashes": [*map(_text, hashes)],
            "checkpoint": str(signed_checkpoint(config, connection)),
        }


def consistency(config: Config, file: Path, key: str | None) -> tuple[dict[str, Any], list[str]]:
    """Return the proof that the log extends an earlier checkpoint, as JSON, and sentences on what speaks against it.

    Args:
        config: names the data.
        file: has the earlier checkpoint.
        key: a trusted verifier key, which signed it, or keys that follow it did; None for those that the log names.

    Raises:
        Malformed: the file holds no checkpoint.
        Unavailable: as `checkpoint`.
    """
    seen = read_checkpoint(file)
    with _reading(config) as connection:
        known = known_keys(connection, [parse_verifier(key)] if key else ())
        first = seen.checkpoint.size
        try:
            second, hashes = log_proofs.consistency(connection, first)
            verify_consistency(first, second, seen.checkpoint.root, log_proofs.root(connection)[1], hashes)
        except Invalid as ex:
            return {}, [str(ex)]
        proof = {"first": first, "second": second, "hashes": [*map(_text, hashes)]}
        return proof | {"checkpoint": str(signed_checkpoint(config, connection))}, list(signature_findings(seen, known))


def signed_checkpoint(config: Config, connection: Connection) -> Note:
    """Sign the present state of the log with the key that the log names last.

    Raises:
        NotFound: the log names no key yet.
        Unavailable: the key can't be read, or is another one.
    """
    path = key_file(config)
    keys = known_keys(connection)
    if not keys:
        raise NotFound(NO_KEY)
    key, name = load_key(path, create=False), keys[-1].name
    if verifier_of(name, key) != keys[-1]:
        raise Unavailable(
            f"{path} is not the key that the log names last. Ask the running broker: GET /log/checkpoint."
        )
    text = str(Checkpoint(name, *log_proofs.root(connection)))
    return Note(text, (sign(text, name, key),))


@private_umask()
def rotate_key(config: Config, *, lost: bool) -> Verifier:
    """Replace the signing key by a new one, which the present one signs; the broker records it when it signs next.

    Args:
        config: names the data and the key.
        lost: whether the present key is lost: then the new one is not signed, and auditors have to be told of it.

    Returns:
        The new verifier key.

    Raises:
        NotFound: the log names no key yet.
        Conflict: the key in the file is not the one that the log names.
        Unavailable: the data or the key can't be read or written.
    """
    with _reading(config) as connection:
        keys = known_keys(connection)
    path, new = key_file(config), Ed25519PrivateKey.generate()
    if not keys:
        raise NotFound(NO_KEY)
    present = keys[-1]
    after = verifier_of(present.name, new)
    if lost:
        replace_key(path, SigningKey(new, lost=str(present)))
        return after
    key = load_key(path) if path.exists() else None
    if key is None or verifier_of(present.name, key) != present:
        raise Conflict(
            f"{path} is not the key that the log names, {present}. If it is a new one that the broker has not used "
            "yet, ask it for GET /log/checkpoint; if the present key is lost: --lost."
        )
    replace_key(path, SigningKey(new, sign_successor(present, key, after)))
    return after


def witness_key(path: Path) -> Ed25519PrivateKey:
    """Read the key of a witness, made if it is missing; raises Unavailable as `load_key`."""
    return load_key(path)


@contextlib.contextmanager
def _reading(config: Config) -> Iterator[Connection]:
    with opened_for_reading(config) as engine, reading(engine) as connection:
        yield connection


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
