"""All commands of the command line, by their words."""

from typing import Any

import typer
from typer.main import get_command


def leaves(app: typer.Typer) -> dict[tuple[str, ...], Any]:
    """Commands that do something, groups that do something without a command among them, by their words."""
    found: dict[tuple[str, ...], Any] = {}
    waiting: list[tuple[tuple[str, ...], Any]] = [((), get_command(app))]
    while waiting:
        words, command = waiting.pop()
        commands = getattr(command, "commands", None)
        if words and (commands is None or command.invoke_without_command):
            found[words] = command
        waiting += [((*words, name), each) for name, each in (commands or {}).items()]
    return dict(sorted(found.items()))
