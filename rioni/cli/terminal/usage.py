"""What is wrong with the arguments of a command, in one line: what it is, and where the right ones are shown."""

import re
from typing import Any

from typer.exceptions import TyperException

from rioni.cli.terminal.output import say
from rioni.domain.nearest import nearest


_QUOTED = re.compile(r"'([^']*)'")
_CHOICE = re.compile(rf"{_QUOTED.pattern.replace('(', '(?P<given>')} is not one of (?P<choices>'.+')\.$")


def say_usage(ex: TyperException) -> None:
    """Write the line to standard error; nothing where the help was shown, since there were no arguments."""
    text = " ".join(ex.format_message().split()).replace("Value error, ", "")
    if not text:
        return
    text += "" if text.endswith((".", "?")) else "."
    if (found := _CHOICE.search(text)) and (near := nearest(found["given"], _QUOTED.findall(found["choices"]))):
        text += f" Did you mean {near}?"
    context: Any = getattr(ex, "ctx", None)
    advice = "" if context is None else f" `{context.command_path} --help` shows what it takes."
    say(f"Error: {text}{advice}", err=True)
