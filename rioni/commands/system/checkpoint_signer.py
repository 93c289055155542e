"""Signs checkpoints of the internal log, and keeps cosignatures of its witnesses."""

import contextlib
from collections.abc import Callable, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rioni.commands.bus import CommandBus
from rioni.commands.context import Context
from rioni.commands.system.log_keys import AddLogKey
from rioni.domain.errors import Conflict, Invalid, Malformed
from rioni.domain.ports.thread_pool import ThreadPool
from rioni.domain.transparency.checkpoint import Checkpoint, parse_checkpoint
from rioni.domain.transparency.cosignatures import Cosignature, Cosignatures
from rioni.domain.transparency.signed_note import Note, Verifier, parse_note, sign, verified, verifier_of


class CheckpointSigner:
    """The signing key of one process, which is read at first use. Calls block on disk and database."""

    def __init__(
        self,
        bus: CommandBus,
        context: Callable[[], Context],
        cosignatures: Cosignatures,
        pool: ThreadPool,
        *,
        origin: Callable[[], str],
        load_key: Callable[[], Ed25519PrivateKey],
        witnesses: Sequence[Verifier],
        root: Callable[[int | None], tuple[int, bytes]],
    ) -> None:
        """Keep the dependencies.

        Args:
            bus: runs the command that records the key.
            context: makes the context of that command.
            cosignatures: keeps those of witnesses.
            pool: runs what blocks.
            origin: returns the name of the log.
            load_key: reads or makes the key.
            witnesses: the verifier keys of the known witnesses.
            root: returns size and root of the tree, for None of the whole tree.
        """
        self._bus, self._context, self._cosignatures, self._pool = bus, context, cosignatures, pool
        self._origin, self._load_key, self._witnesses, self._root = origin, load_key, witnesses, root
        self._signing: tuple[str, Ed25519PrivateKey] | None = None

    def verifier(self) -> Verifier:
        """Return the public key, which the log records before it signs anything.

        Raises:
            Unavailable: the key can't be read, or the database can't be used.
        """
        return verifier_of(*self._key())

    def checkpoint(self) -> Note:
        """Sign the present state of the log; with the cosignatures of those witnesses that have seen just this state.

        Raises:
            Unavailable: as `verifier`, or the tree is not built yet.
        """
        name, key = self._key()
        text = str(Checkpoint(name, *self._root(None)))
        return self._with_cosignatures(text, sign(text, name, key))

    def cosigned(self) -> Note | None:
        """Return the newest checkpoint that a witness has cosigned, None if there is none; raises as `checkpoint`."""
        name, key = self._key()
        known = self._pool(self._cosignatures.all)
        if not known:
            return None
        text = max(known, key=lambda each: each.size).text
        return self._with_cosignatures(text, sign(text, name, key))

    def add(self, data: bytes) -> int:
        """Keep the cosignatures in a note; return how many there are.

        Args:
            data: a checkpoint of this log, with signatures of witnesses.

        Raises:
            Malformed: this is no such note, or a signature is not valid.
            Conflict: the checkpoint is not one of this log.
            Invalid: no known witness has signed it.
            Unavailable: as `checkpoint`.
        """
        note = parse_note(data)
        checkpoint = parse_checkpoint(note.text)
        size, root = self._root(None)
        if checkpoint.size <= size:
            size, root = self._root(checkpoint.size)
        if checkpoint != Checkpoint(self._key()[0], size, root):
            raise Conflict("This is not a checkpoint of this log: its name, its size, or its root is another one.")
        signed = verified(note, self._witnesses)
        if not signed:
            raise Invalid("No witness that the setting log_witnesses names has cosigned this checkpoint.")
        for verifier in signed:
            # A witness may have signed the same checkpoint several times; `verified` has the time of its last line.
            *_, line = [str(each) for each in note.signatures if (each.name, each.id) == (verifier.name, verifier.id)]
            self._pool(self._cosignatures.add, Cosignature(verifier.name, size, note.text, line))
        return len(signed)

    def _with_cosignatures(self, text: str, signature: object) -> Note:
        found = [each.signature for each in self._pool(self._cosignatures.all) if each.text == text]
        lines = "".join(f"{line}\n" for line in (signature, *found))
        note = parse_note(f"{text}\n{lines}".encode())
        known = [verifier_of(*self._key()), *self._witnesses]
        with contextlib.suppress(Malformed):
            kept = {(each.name, each.id) for each in verified(note, known)}
            return note._replace(signatures=[each for each in note.signatures if (each.name, each.id) in kept])
        return note._replace(signatures=note.signatures[:1])

    def _key(self) -> tuple[str, Ed25519PrivateKey]:
        if self._signing is None:
            name, key = self._pool(self._origin), self._pool(self._load_key)
            self._bus.dispatch(AddLogKey(verifier=str(verifier_of(name, key))), self._context())
            self._signing = name, key
        return self._signing
