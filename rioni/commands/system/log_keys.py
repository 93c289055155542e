"""The command that records with which key checkpoints of the log are signed."""

from dataclasses import dataclass

from rioni.commands.unit_of_work import UnitOfWork
from rioni.domain.system.log_keys import LOG_KEYS, LogKeyAdded, LogKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class AddLogKey:
    """Sign checkpoints with this key from now on."""

    verifier: str


def add_log_key(command: AddLogKey, unit_of_work: UnitOfWork) -> None:
    """Record a key; if it is the present one, nothing changes."""
    keys: LogKeys = unit_of_work.find("log-keys", LOG_KEYS) or LogKeys()
    if keys.keys[-1:] != (command.verifier,):
        unit_of_work.record(LogKeyAdded(verifier=command.verifier))
