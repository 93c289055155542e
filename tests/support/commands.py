"""Runs commands of the command line in this process."""

import sys

import pytest

from rioni.cli import app


def run_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    """Run a command; return its exit code, and what it said on stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["rioni", *arguments])
    with pytest.raises(SystemExit) as exited:
        app.main()
    said = capsys.readouterr()
    return int(exited.value.code or 0), said.out, said.err
