"""Measurements reported by an external event store."""

from collections.abc import Callable
from typing import NamedTuple


def _ignored(_value: float) -> None:
    pass


class StoreMeasurements(NamedTuple):
    """Callbacks for measurements; each is cheap, never raises, and is called where metrics may be updated."""

    append_seconds: Callable[[float], None] = _ignored
    """Seconds that a group of batches has waited for the store."""
    failed_batches: Callable[[float], None] = _ignored
    """Number of batches that were not stored, or whose outcome is unknown."""
    loaded_bytes: Callable[[float], None] = _ignored
    """Bytes read from the store that were no longer in memory."""
    events_behind: Callable[[float], None] = _ignored
    """Lag: number of written events that this process has not read yet."""
    topic_resyncs: Callable[[float], None] = _ignored
    """Number of topics followed anew from their ends, because they had changed unexpectedly."""
    recovered_batches: Callable[[float], None] = _ignored
    """Number of interrupted batches whose outcome was recovered."""
