"""Which keys sign the checkpoints of a log: those that it names, or those that follow a key that an auditor trusts."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from sqlalchemy import Connection

from rioni.domain.errors import Malformed
from rioni.domain.transparency.key_succession import check_successor, successors
from rioni.domain.transparency.signed_note import Verifier
from rioni.projections.queries import log_proofs


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
