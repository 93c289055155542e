"""A log as a broker shows it to witnesses, and what a broker with the signing key can make of one."""

import base64
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rioni.client import ConsistencyProof, UnexpectedAnswer, VerifierKey
from rioni.domain.transparency.checkpoint import Checkpoint, Note, sign, verifier_of
from tests.support import rfc9162


class ShownLog:
    """A log that a broker shows; `client` is a client of this broker, which has no other part."""

    def __init__(self, leaves: Sequence[bytes], name: str, key: Ed25519PrivateKey) -> None:
        self.leaves, self.name, self.key = list(leaves), name, key
        self.proof: Callable[[list[bytes]], Any] | None = None
        """Makes the answer that replaces the object with the right proof of consistency; None to answer with that."""
        self.note: str | None = None
        """The checkpoint shown, if not the right one."""
        self.cosigned = 0
        self.keys = [{"verifier": self.verifier, "signature": ""}]

    @property
    def root(self) -> bytes:
        """The root over all leaves."""
        return rfc9162.mth(self.leaves)

    def checkpoint(self, *, size: int | None = None, root: bytes | None = None) -> str:
        """A signed checkpoint, of these leaves or with another size or root."""
        shown = Checkpoint(self.name, len(self.leaves) if size is None else size, self.root if root is None else root)
        return str(Note(str(shown), (sign(str(shown), self.name, self.key),)))

    @property
    def verifier(self) -> str:
        """The verifier key of the log."""
        return str(verifier_of(self.name, self.key))

    @property
    def client(self) -> Any:
        """A client whose requests this log answers."""
        log = SimpleNamespace(
            key=lambda: self.verifier,
            keys=lambda: [VerifierKey(**each) for each in self.keys],
            checkpoint=lambda: self.note or self.checkpoint(),
            cosign=self._cosign,
            consistency=self._consistency,
        )
        return SimpleNamespace(url="http://127.0.0.1:1", log=log)

    def _cosign(self, note: str) -> int:
        assert note
        self.cosigned += 1
        return 1

    def _consistency(self, first: int, *, second: int) -> ConsistencyProof:
        if second > len(self.leaves):
            raise UnexpectedAnswer("422")
        proof = rfc9162.proof(first, self.leaves[:second])
        answer = {"hashes": encoded(proof)} if self.proof is None else self.proof(proof)
        try:
            return msgspec.convert({"first": first, "second": second, **answer}, ConsistencyProof)
        except (msgspec.ValidationError, TypeError) as ex:
            raise UnexpectedAnswer(str(ex)) from ex


def encoded(hashes: Sequence[bytes]) -> list[str]:
    """Hashes as they stand in an answer."""
    return [base64.b64encode(each).decode() for each in hashes]
