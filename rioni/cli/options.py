"""Options that commands of all kinds share, groups of options, and times as they are written in options."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, get_type_hints

import typer

from rioni.domain.timestamps import beyond_millisecond, parsed, utc_text


# --- Options that commands of all kinds share ---

PANEL = "Connection and output"
"""The heading of the options that all commands over HTTP have."""

SECONDS_MAX, DAYS_MAX = 31_536_000, 36_500
"""A year and a hundred years; the limits of the operating system and the calendar are higher."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value a line.", rich_help_panel=PANEL)]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


# --- Groups of options: a parameter of a command that is a dataclass stands for options, which are its fields ---


def parameters_of(command: Callable[..., None]) -> Iterator[inspect.Parameter]:
    """The parameters of a command, with the options of groups instead of these."""
    for each in inspect.signature(command, eval_str=True).parameters.values():
        if not is_dataclass(each.annotation):
            yield each
            continue
        kinds = get_type_hints(each.annotation, include_extras=True)
        for field in fields(each.annotation):
            default = field.default if field.default_factory is MISSING else field.default_factory()
            yield inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kinds[field.name]
            )


def grouped(command: Callable[..., None], values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a command by the values of `parameters_of`."""
    found = dict(values)
    for name, each in inspect.signature(command, eval_str=True).parameters.items():
        if is_dataclass(kind := each.annotation):
            assert isinstance(kind, type)
            found[name] = kind(**{field.name: found.pop(field.name) for field in fields(kind)})
    return found


# --- Times on the command line ---

POSITION = re.compile(r"[0-9]{1,18}")


def log_time(text: str) -> str:
    """A time in the form of the log, which compares as text; rounded up to a millisecond, as the API rounds.

    Args:
        text: RFC 3339, or a day in UTC.
    """
    return _log_time(text, ms=int(beyond_millisecond(text)))


def moment(text: str) -> int | str:
    """A position of the log, or the millisecond of a time in the form of the log."""
    return int(text) if POSITION.fullmatch(text) else _log_time(text)


def _log_time(text: str, *, ms: int = 0) -> str:
    try:
        time = _utc(parsed(text)) + timedelta(milliseconds=ms)
    except (ValueError, OverflowError) as ex:
        raise typer.BadParameter(f"{text} is not a time; write 2026-01-31 or 2026-01-31T12:00:00Z") from ex
    return utc_text(time)


_AGO = re.compile(r"-?([0-9]{1,9})(s|m|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def point_in_time(text: str) -> datetime:
    """A time, in UTC: RFC 3339, a day in UTC, or how long ago, such as `10m` or `-10m`."""
    if ago := _AGO.fullmatch(text):
        try:
            return datetime.now(UTC) - timedelta(seconds=int(ago[1]) * _SECONDS[ago[2]])
        except OverflowError as ex:
            raise typer.BadParameter(f"{text} ago was before the year 1") from ex
    try:
        return _utc(parsed(text))
    except (ValueError, OverflowError) as ex:
        raise typer.BadParameter(
            f"{text} is not a time; write 2026-01-31, 2026-01-31T12:00:00Z, or 10m for ten minutes ago"
        ) from ex


def _utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
