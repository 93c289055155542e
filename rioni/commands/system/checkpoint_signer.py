"""Signs checkpoints of the internal log, keeps cosignatures of its witnesses, and records the keys that sign."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rioni.commands.bus import CommandBus
from rioni.commands.unit_of_work import CommandContext, UnitOfWork
from rioni.domain.errors import Conflict, Invalid, Malformed, Unavailable
from rioni.domain.ports.host import ThreadPool
from rioni.domain.transparency.checkpoint import (
    Checkpoint,
    Cosignature,
    Cosignatures,
    Note,
    Verifier,
    parse_checkpoint,
    parse_note,
    parse_verifier,
    sign,
    verified,
    verifier_of,
)
from rioni.domain.transparency.log_keys import LOG_KEYS, LogKey, LogKeyAdded, LogKeys, SigningKey, check_successor


# --- The command that records with which key checkpoints of the log are signed ---


@dataclass(frozen=True, slots=True, kw_only=True)
class AddLogKey:
    """Sign checkpoints with this key from now on."""

    verifier: str
    signature: str = ""
    """The signature by the present key, which this one follows."""
    lost: str = ""
    """The present key, if it is lost and can't sign this one."""


def add_log_key(command: AddLogKey, unit_of_work: UnitOfWork) -> None:
    """Record a key; if it is the present one, nothing changes.

    Raises:
        Conflict: the log names another key, which has not signed this one and is not declared lost.
    """
    keys: LogKeys = unit_of_work.find("log-keys", LOG_KEYS) or LogKeys()
    present = keys.keys[-1].verifier if keys.keys else None
    if present == command.verifier:
        return
    if any(each.verifier == command.verifier for each in keys.keys):
        raise Conflict(
            f"This is an earlier signing key of the log; the present one is {present}. Copy the key file of a node "
            "that has it to this one."
        )
    signature = ""
    if present is not None and command.lost != present:
        before, after = parse_verifier(present), LogKey(parse_verifier(command.verifier), command.signature)
        if before.name != after.verifier.name:
            raise Conflict(f"The log is named {before.name} in its entries; the setting log_origin can't be changed.")
        signature = command.signature
        try:
            check_successor(before, after)
        except Malformed as ex:
            raise Conflict(
                f"The log names another signing key, {present}, which has not signed this one. Copy the key file of a "
                "node that has it to this one; a new key is made by `rioni audit rotate-key`, from the present one."
            ) from ex
    unit_of_work.record(LogKeyAdded(verifier=command.verifier, signature=signature))


# --- Signs checkpoints of the internal log, and keeps cosignatures of its witnesses ---


class SignedLog(NamedTuple):
    """Name, keys and root of the log. Calls block on the database and raise Unavailable."""

    origin: Callable[[], str]
    """Returns its name."""
    keys: Callable[[], Sequence[LogKey]]
    """Returns the keys that it names."""
    root: Callable[[int | None], tuple[int, bytes]]
    """Returns size and root of the tree, for None of the whole tree."""


class CheckpointSigner:
    """Signs with the key of this node, which has to be the one that the log names. Calls block on disk and database."""

    def __init__(
        self,
        bus: CommandBus,
        context: Callable[[], CommandContext],
        cosignatures: Cosignatures,
        pool: ThreadPool,
        *,
        log: SignedLog,
        load_key: Callable[[], SigningKey],
        witnesses: Sequence[Verifier],
    ) -> None:
        """Keep the dependencies.

        Args:
            bus: runs the command that records the key.
            context: makes the context of that command.
            cosignatures: keeps those of witnesses.
            pool: runs blocking calls.
            log: the log to sign.
            load_key: reads or makes the key. It is read each time: the file may be replaced.
            witnesses: the verifier keys of the known witnesses.
        """
        self._bus, self._context, self._cosignatures, self._pool = bus, context, cosignatures, pool
        self._log, self._load_key, self._witnesses = log, load_key, witnesses

    def verifier(self) -> Verifier:
        """Return the public key, which the log records before it signs anything.

        Raises:
            Unavailable: the key can't be read, or is not the one that the log names; the database can't be used.
        """
        return verifier_of(*self._key())

    def checkpoint(self) -> Note:
        """Sign the present state of the log; with the cosignatures of those witnesses that have seen just this state.

        Raises:
            Unavailable: as `verifier`, or the tree is not built yet.
        """
        name, key = self._key()
        return self._signed(str(Checkpoint(name, *self._log.root(None))), name, key)

    def cosigned(self) -> Note | None:
        """Return the newest checkpoint that a witness has cosigned, None if there is none; raises as `checkpoint`."""
        known = self._pool(self._cosignatures.all)
        if not known:
            return None
        return self._signed(max(known, key=lambda each: each.size).text, *self._key())

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
        size, root = self._log.root(None)
        if checkpoint.size <= size:
            size, root = self._log.root(checkpoint.size)
        if checkpoint != Checkpoint(self._key()[0], size, root):
            raise Conflict("This is not a checkpoint of this log: its name, size or root differs.")
        signed = verified(note, self._witnesses)
        if not signed:
            raise Invalid("No witness that the setting log_witnesses names has cosigned this checkpoint.")
        for verifier in signed:
            # A witness may have signed the same checkpoint several times; `verified` has the time of its last line.
            *_, line = [str(each) for each in note.signatures if (each.name, each.id) == (verifier.name, verifier.id)]
            self._pool(self._cosignatures.add, Cosignature(verifier.name, size, note.text, line))
        return len(signed)

    def _signed(self, text: str, name: str, key: Ed25519PrivateKey) -> Note:
        """Sign a checkpoint, and add the cosignatures that there are for its text."""
        signature = sign(text, name, key)
        found = [each.signature for each in self._pool(self._cosignatures.all) if each.text == text]
        lines = "".join(f"{line}\n" for line in (signature, *found))
        note = parse_note(f"{text}\n{lines}".encode())
        known = [verifier_of(name, key), *self._witnesses]
        with contextlib.suppress(Malformed):
            kept = {(each.name, each.id) for each in verified(note, known)}
            return note._replace(signatures=[each for each in note.signatures if (each.name, each.id) in kept])
        return note._replace(signatures=note.signatures[:1])

    def _key(self) -> tuple[str, Ed25519PrivateKey]:
        """The name and the key; first the log records it, if it does not name it yet."""
        name, key = self._log.origin(), self._pool(self._load_key)
        verifier = verifier_of(name, key.private)
        if verifier not in [each.verifier for each in self._log.keys()[-1:]]:
            command = AddLogKey(verifier=str(verifier), signature=key.signature, lost=key.lost)
            try:
                self._bus.dispatch(command, self._context())
            except Conflict as ex:
                raise Unavailable(str(ex)) from ex
        return name, key.private
