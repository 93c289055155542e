"""What is wrong with the arguments of a command, in one line: what it is, and where the right ones are shown."""

from typing import Any

from typer.exceptions import TyperException

from rioni.cli.output import say


def say_usage(ex: TyperException) -> None:
    """Write the line to standard error; nothing where the help was shown, since there were no arguments."""
    text = " ".join(ex.format_message().split())
    if not text:
        return
    text += "" if text.endswith((".", "?")) else "."
    context: Any = getattr(ex, "ctx", None)
    advice = "" if context is None else f" `{context.command_path} --help` shows what it takes."
    say(f"Error: {text}{advice}", err=True)
