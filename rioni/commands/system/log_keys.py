"""The command that records with which key checkpoints of the log are signed."""

from dataclasses import dataclass

from rioni.commands.unit_of_work import UnitOfWork
from rioni.domain.errors import Conflict, Malformed
from rioni.domain.system.log_keys import LOG_KEYS, LogKeyAdded, LogKeys
from rioni.domain.transparency.key_succession import LogKey, check_successor
from rioni.domain.transparency.signed_note import parse_verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class AddLogKey:
    """Sign checkpoints with this key from now on."""

    verifier: str
    signature: str = ""
    """Of the present key, which this one follows."""
    lost: str = ""
    """The present key, if it is lost and can't sign this one."""


def add_log_key(command: AddLogKey, unit_of_work: UnitOfWork) -> None:
    """Record a key; if it is the present one, nothing changes.

    Raises:
        Conflict: the log names another key, which has not signed this one and is not said to be lost.
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
