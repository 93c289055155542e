"""Proves that a client which comes back was sent what it returns, on whatever worker or node that was."""

import hashlib
import hmac
import json
from collections.abc import Callable
from functools import cached_property

from rioni.domain.access.authorization import Subject


PROOF_CHARACTERS = 32


class Resumption:
    """Makes and checks proofs, which bind a stream to its client.

    Stream ids alone prove nothing: `/stats` shows them to all readers of a subscription.
    """

    def __init__(self, secret: Callable[[], bytes]) -> None:
        """Prepare.

        Args:
            secret: returns what all workers and nodes know, and nobody else does; may block on the disk, and raise
                Unavailable.
        """
        self._secret = secret

    @cached_property
    def _key(self) -> bytes:
        return hmac.digest(self._secret(), b"streams of rioni that are resumed", "sha256")

    def proof(self, name: str, subject: Subject) -> str:
        """The proof that a client was sent a stream.

        Args:
            name: of the stream, never reused.
            subject: the client.
        """
        bound = json.dumps([name, subject.key]).encode()
        return hmac.new(self._key, bound, hashlib.sha256).hexdigest()[:PROOF_CHARACTERS]

    def proves(self, proof: str, name: str, subject: Subject) -> bool:
        """Whether a proof is that of a client and a stream."""
        return hmac.compare_digest(proof.encode(), self.proof(name, subject).encode())
