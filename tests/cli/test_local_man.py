"""`rioni man`: manual pages of all commands."""

import re
from pathlib import Path

from tests.support.commands import all_commands


def test_the_page_of_a_command_has_what_its_help_has(run):
    code, page, _ = run("man", "context", "add")
    assert code == 0
    assert page.startswith('.TH "RIONI\\-CONTEXT\\-ADD" 1')
    for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "ARGUMENTS", "OPTIONS", "EXAMPLES", "EXIT STATUS"):
        assert f".SH {heading}\n" in page
    assert ".TP\n.B \\-\\-token\\-env VARIABLE\n" in page
    assert "\\fBsh \\-c '...'\\fR" in page


def test_all_pages_are_written_as_files_that_man_finds(run):
    code, out, _ = run("man", "--to", "man1", "--json")
    written = {path.stem for path in Path("man1").iterdir()}
    assert code == 0
    assert {"-".join(["rioni", *words]) for words, _ in all_commands()} | {"rioni", "rioni-context"} <= written
    assert f'"pages":{len(written)}' in out
    for path in Path("man1").iterdir():
        # A line that begins with a dot is a request.
        lines = path.read_text().splitlines()
        assert not [line for line in lines if re.match(r"['.](?!(TH|SH|B|PP|TP|nf|fi)\b)", line)]


def test_an_unknown_command_is_an_error(run):
    code, _, err = run("man", "context", "ad")
    assert code == 2
    assert "There is no command `rioni context ad`" in err
