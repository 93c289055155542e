"""How a command ends: its exit code and the line about an error, and how it is asked to end from outside."""

import re
import signal
import sys
from collections.abc import Callable
from typing import Any

import typer
from typer.exceptions import TyperException

from rioni.cli.terminal.output import say
from rioni.cli.terminal.streams import CannotWrite, ReaderEnded, discard_output
from rioni.domain.errors import RioniError
from rioni.domain.texts import nearest


# --- Exit codes of all commands; 0 is success ---

FOUND = 1
"""Findings or differences were asked for and found."""
NOTHING_FOUND = 1
"""Nothing was found, as with grep."""
REFUSED = 1
"""The command did its work, but the broker refused some of it."""
FAILED = 2
"""The command could not do its work."""
INTERRUPTED = 130
"""Ctrl-C, as shells count it."""
BROKEN_PIPE = 141
"""The program that reads the output has ended, as shells count it."""


# --- Requests from outside to end a command: SIGTERM, and SIGHUP when its terminal is closed ---

ENDING = (signal.SIGTERM, signal.SIGHUP)


def when_asked_to_end(handler: Callable[[int, object], object]) -> None:
    """Have a handler called for each signal that asks to end, except those that are ignored, as `nohup` has it.

    Call it in the main thread.
    """
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


# --- Wrong arguments of a command, in one line: the error, and the place where the right ones are shown ---

_QUOTED = re.compile(r"'([^']*)'")
_CHOICE = re.compile(rf"{_QUOTED.pattern.replace('(', '(?P<given>')} is not one of (?P<choices>'.+')\.$")


def say_usage(ex: TyperException) -> None:
    """Write the line to standard error; nothing if the help was shown, since there were no arguments."""
    text = " ".join(ex.format_message().split()).replace("Value error, ", "")
    if not text:
        return
    text += "" if text.endswith((".", "?")) else "."
    if (found := _CHOICE.search(text)) and (near := nearest(found["given"], _QUOTED.findall(found["choices"]))):
        text += f" Did you mean {near}?"
    context: Any = getattr(ex, "ctx", None)
    advice = "" if context is None else f" `{context.command_path} --help` shows what it takes."
    say(f"Error: {text}{advice}", err=True)


def run(
    app: typer.Typer, name: str, *, complete_var: str | None = None, failures: tuple[type[Exception], ...] = ()
) -> None:
    """Run the command that `sys.argv` names, and exit.

    Args:
        app: the command line.
        name: of the program.
        complete_var: the variable by which a shell asks for completions.
        failures: errors whose text is for the user, in addition to those of Rioni.
    """
    try:
        try:
            code = app(prog_name=name, complete_var=complete_var, standalone_mode=False)
        finally:
            sys.stdout.flush()
    except (ReaderEnded, BrokenPipeError):
        discard_output()
        sys.exit(BROKEN_PIPE)
    except TyperException as ex:
        say_usage(ex)
        sys.exit(FAILED)
    except typer.Abort:
        say("Error: The question was not answered; nothing was done.", err=True)
        sys.exit(FAILED)
    except (RioniError, *failures) as ex:  # type: ignore[misc] # a tuple of classes
        if isinstance(ex, CannotWrite):
            discard_output()
        notes = (" ".join(each.split()) for each in getattr(ex, "__notes__", ()))
        say(" ".join([f"Error: {_in_one_line(str(ex))}", *notes]), err=True)
        sys.exit(FAILED)
    except OSError as ex:
        say(
            f"Error: {ex.filename or 'A file'} can't be used: {ex.strerror or ex}. Check disk space and permissions.",
            err=True,
        )
        sys.exit(FAILED)
    sys.exit(code)


def _in_one_line(text: str) -> str:
    """A text in which the answers of a broker, or of a proxy in front of it, may have several lines."""
    return " ".join(line for each in text.splitlines() if (line := each.strip()))
