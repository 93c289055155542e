r"""Templates of lines: `'{metadata.eid}\t{order}'` for `--template`."""

from collections.abc import Callable
from string import Formatter
from typing import Any

import typer

from rioni.cli.terminal.tables import json_line, value_at
from rioni.domain.terminal_text import visible_line


ESCAPES = {r"\t": "\t", r"\n": "\n"}


def template(text: str) -> Callable[[Any], str]:
    r"""What fills a template with the values of a JSON value.

    Braces hold the path of a value, and may end with a format: `{price:>10.2f}`. Values that are missing are empty,
    objects and lists are JSON. `{{` is a brace, `\t` a tabulator, `\n` a line break.

    Args:
        text: the template; BadParameter if it is none.
    """
    parts = _parsed(text)

    def fill(item: Any) -> str:
        return "".join(
            literal if path is None else literal + _formatted(value_at(item, path), spec or "")
            for literal, path, spec, _ in parts
        )

    return fill


def paths_of(text: str) -> list[str]:
    """The paths in a template; BadParameter if it is none."""
    return [path for _, path, _, _ in _parsed(text) if path is not None]


def _parsed(text: str) -> list[tuple[str, str | None, str | None, str | None]]:
    for escape, char in ESCAPES.items():
        text = text.replace(escape, char)
    try:
        parts = list(Formatter().parse(text))
    except ValueError as ex:
        raise typer.BadParameter(f"{text} is no template: {ex}", param_hint="--template") from ex
    for _, path, _, conversion in parts:
        if path is not None and (not all(path.split(".")) or conversion):
            raise typer.BadParameter(
                f"{text} is no template: braces hold a path such as {{order.id}}; {{{{ is a brace",
                param_hint="--template",
            )
    return parts


def _formatted(value: Any, spec: str) -> str:
    if value is None:
        value = ""
    elif isinstance(value, bool | list | dict):
        value = json_line(value)
    try:
        return visible_line(format(value, spec))
    except ValueError as ex:
        raise typer.BadParameter(f"{value!r} does not fit the format {spec}: {ex}", param_hint="--template") from ex
