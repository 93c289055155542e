"""Times on the command line."""

from datetime import UTC, datetime

import typer


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
