"""Measurements reported by an external event store."""

from collections.abc import Callable
from typing import NamedTuple


def _ignored(_value: float) -> None:
    pass


class StoreMeasurements(NamedTuple):
    """Receives measurements; each method is cheap, never raises, and is called where metrics may be updated."""

    append_seconds: Callable[[float], None] = _ignored
    """How long a group of batches has waited for the store."""
    failed_batches: Callable[[float], None] = _ignored
    """So many batches were not stored, or not for certain."""
    loaded_bytes: Callable[[float], None] = _ignored
    """So much was read that was not in memory any more."""
    events_behind: Callable[[float], None] = _ignored
    """So many events are known to be written, but this process has not read them yet."""
    begun_anew: Callable[[float], None] = _ignored
    """So many topics are followed from their ends on again, because they were not what they had been."""
    settled_batches: Callable[[float], None] = _ignored
    """Of so many batches it was found out what had become of them."""
