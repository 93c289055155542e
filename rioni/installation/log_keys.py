"""Which keys sign the checkpoints of a log: those that it names, or those that follow a key that an auditor trusts."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from sqlalchemy import Connection

from rioni.domain.errors import Malformed, Unavailable
from rioni.domain.transparency.key_succession import LogKey, check_successor, successors
from rioni.domain.transparency.signed_note import Verifier, verifier_of
from rioni.projections.queries import log_proofs
from rioni.storage.signing_key import load_signing_key


def known_keys(connection: Connection, trusted: Sequence[Verifier] = ()) -> list[Verifier]:
    """Return the keys whose signatures count.

    Args:
        connection: to the database.
        trusted: keys from elsewhere: they count, and those that follow them by signatures. Without any, the keys that
            the log names.
    """
    keys = log_proofs.keys(connection)
    if not trusted:
        return [each.verifier for each in keys]
    return list(dict.fromkeys(each for key in trusted for each in successors(key, keys)))


def key_findings(connection: Connection) -> Iterator[str]:
    """Yield a sentence for each key that the log names with a wrong signature of the key before."""
    keys = log_proofs.keys(connection)
    for before, after in pairwise(keys):
        if after.signature:
            try:
                check_successor(before.verifier, after)
            except Malformed as ex:
                yield f"log, signing keys: {ex}"


def key_file_findings(connection: Connection, path: Path) -> Iterator[str]:
    """Yield a sentence if the signing key of this host neither is the last one that the log names nor follows it.

    Args:
        connection: to the database.
        path: of the key; a copy of the data may lack it.
    """
    keys = log_proofs.keys(connection)
    if not keys or not path.exists():
        return
    last = keys[-1].verifier
    try:
        key = load_signing_key(path)
    except Unavailable as ex:
        yield f"log, signing keys: {ex}"
        return
    present = verifier_of(last.name, key.private)
    if present == last or key.lost == str(last):
        return
    try:
        check_successor(last, LogKey(present, key.signature))
    except Malformed:
        yield (
            f"log, signing keys: {path.name} holds {present}, which the log does not name, and which does not follow "
            f"its last key, {last}. Put the right file back; for a lost key: `rioni audit rotate-key --lost`"
        )


def missing_key(connection: Connection, path: Path) -> Iterator[str]:
    """Yield a sentence if the log names a signing key, and this host has none: a copy of the data may lack it."""
    if log_proofs.keys(connection) and not path.exists():
        yield f"log, signing keys: {path} is missing here, without which a broker signs no checkpoints"


def lost_keys(connection: Connection) -> Iterator[str]:
    """Yield a sentence for each key that the one before it did not sign."""
    for before, after in pairwise(log_proofs.keys(connection)):
        if not after.signature:
            yield (
                f"log, signing keys: {after.verifier} replaced {before.verifier}, which was reported as lost. No "
                "signature links them: only checkpoints that auditors kept show that the log was not changed then"
            )
