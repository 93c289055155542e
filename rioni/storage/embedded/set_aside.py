"""Moves what is in the place of a file or folder of a data directory aside; nothing is deleted."""

import itertools
import time
from pathlib import Path

import structlog


_log = structlog.get_logger("rioni.storage")


def set_aside(path: Path, *, quietly: bool = False) -> str:
    """Rename a file or folder; return its new name, empty if there was none.

    Args:
        path: of what is in the way.
        quietly: whether the caller logs it.

    Raises:
        OSError: it can't be renamed.
    """
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    names = (f"{path.name}.damaged-{now}" + (f"-{number}" if number else "") for number in itertools.count())
    kept = next(name for name in names if not path.with_name(name).exists())
    try:
        path.rename(path.with_name(kept))
    except FileNotFoundError:
        return ""
    if not quietly:
        _log.warning("moved aside what was in the place of a file or folder of the broker", path=path.name, kept=kept)
    return kept
