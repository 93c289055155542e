"""`rioni-testing` in the environments that users have: errors are one line, with the exit codes of `rioni`."""

import os
import subprocess
import sys

import pytest

from tests.support.waiting import WAIT_S


FULL = "Error: Standard output can't be written: No space left on device."
CLOSED = "Error: Standard output can't be written: it is closed."
USAGE = "Error: Missing argument 'status'. `rioni-testing fail-next --help` shows what it takes."
NOWHERE = "`rioni-testing serve --port 1` starts one."


@pytest.mark.parametrize(
    ("arguments", "redirections", "environ", "said"),
    [
        ("--help", ">/dev/full", {}, FULL),
        ("--help", ">&-", {}, CLOSED),
        ("fail-next", "", {"COLUMNS": "60"}, USAGE),
        ("fail-next", "", {"PYTHONIOENCODING": "ascii", "FORCE_COLOR": "1"}, USAGE),
        ("reset --port 1", "", {"HOME": None, "TMPDIR": "/proc", "TERM": None}, NOWHERE),
        ("serve --set typo=1", "<&-", {}, "Error: settings: typo is not a setting"),
        ("reset --port 1", "2>&-", {}, ""),
    ],
)
def test_what_can_not_be_done_is_one_line_and_2(arguments, redirections, environ, said):
    """Reference exit-codes#codes."""
    changed = os.environ | environ
    done = subprocess.run(
        ["bash", "-c", f'"$0" -m rioni.testing {arguments} {redirections}', sys.executable],
        env={name: value for name, value in changed.items() if value is not None},
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == bool(said)
