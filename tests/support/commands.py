"""Runs commands of the command line in this process."""

import io
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from rioni.cli import app


def all_commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its words, such as `("context", "add")`; groups only if they do something themselves."""
    yield from _commands((), typer.main.get_command(app.app))


def _commands(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if words and (not hasattr(command, "commands") or command.invoke_without_command):
        yield words, command
    for name, each in getattr(command, "commands", {}).items():
        yield from _commands((*words, name), each)


def run_command(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *arguments: str,
    stdin: str | bytes | None = None,
) -> tuple[int, str, str]:
    """Run a command; return its exit code, and what it said on stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["rioni", *arguments])
    if stdin is not None:
        monkeypatch.setattr(
            sys,
            "stdin",
            io.TextIOWrapper(io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin), encoding="utf-8"),
        )
    with pytest.raises(SystemExit) as exited:
        app.main()
    said = capsys.readouterr()
    return int(exited.value.code or 0), said.out, said.err
