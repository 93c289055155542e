"""Times on the command line."""

import re
from datetime import UTC, datetime

import typer


POSITION = re.compile(r"[0-9]{1,18}")


def log_time(text: str) -> str:
    """A time in the form of the log, which compares as text.

    Args:
        text: RFC 3339, or a day in UTC.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError as ex:
        raise typer.BadParameter(f"{text} is not a time; write 2026-01-31 or 2026-01-31T12:00:00Z") from ex
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: str) -> int | str:
    """A position of the log, or a time as `log_time`."""
    return int(text) if POSITION.fullmatch(text) else log_time(text)
