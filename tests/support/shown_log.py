"""A log as a broker shows it to witnesses, and what a broker with the signing key can make of one."""

import base64
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rioni.domain.errors import Unavailable
from rioni.domain.transparency.checkpoint import Checkpoint
from rioni.domain.transparency.signed_note import Note, sign, verifier_of
from tests.support import rfc9162


class ShownLog:
    """Answers the requests of `rioni.cli.broker.witnessing` in its place of `call` and `call_text`."""

    def __init__(self, leaves: Sequence[bytes], name: str, key: Ed25519PrivateKey) -> None:
        self.leaves, self.name, self.key = list(leaves), name, key
        self.proof: Callable[[list[bytes]], Any] | None = None
        """Makes the answer that replaces the object with the right proof of consistency; None to answer with that."""
        self.note: str | None = None
        """The checkpoint shown, if not the right one."""
        self.cosigned = 0
        self.keys = [{"verifier": str(verifier_of(name, key)), "signature": ""}]

    @property
    def root(self) -> bytes:
        """The root over all leaves."""
        return rfc9162.mth(self.leaves)

    def checkpoint(self, *, size: int | None = None, root: bytes | None = None) -> str:
        """A signed checkpoint, of these leaves or with another size or root."""
        shown = Checkpoint(self.name, len(self.leaves) if size is None else size, self.root if root is None else root)
        return str(Note(str(shown), (sign(str(shown), self.name, self.key),)))

    def call_text(self, _server: object, path: str) -> str:
        """The key or the checkpoint."""
        if path == "/log/key":
            return f"{verifier_of(self.name, self.key)}\n"
        assert path == "/log/checkpoint"
        return self.note or self.checkpoint()

    def call(
        self, _server: object, method: str, path: str, body: Any = None, *, accept: tuple[int, ...] = ()
    ) -> tuple[int, Any]:
        """A proof of consistency as a broker makes it, or what takes its place; cosignatures are counted."""
        if method == "POST":
            assert body
            assert accept
            self.cosigned += 1
            return 200, {"cosignatures": 1}
        if path == "/log/keys":
            return 200, {"keys": self.keys}
        query = {name: int(value) for name, (value,) in parse_qs(urlsplit(path).query).items()}
        if query["second"] > len(self.leaves):
            raise Unavailable("422")
        proof = rfc9162.proof(query["first"], self.leaves[: query["second"]])
        if self.proof is not None:
            return 200, self.proof(proof)
        return 200, {**query, "hashes": encoded(proof)}


def encoded(hashes: Sequence[bytes]) -> list[str]:
    """Hashes as they stand in an answer."""
    return [base64.b64encode(each).decode() for each in hashes]
