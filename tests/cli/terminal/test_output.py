"""Output of commands: tables for people, JSON lines for programs, and questions."""

import io
import json
import re
import sys

import pytest

from rioni.cli.terminal.output import NotConfirmed, Output, confirm, confirm_name, progress_bars
from rioni.cli.terminal.tables import shown
from rioni.domain.errors import Invalid
from rioni.wire.base import Model


ITEMS = [{"name": "a\x1b[31m", "count": 1234, "at": "2026-01-31T12:00:00.123Z"}, {"name": "bb", "count": 5}]
COLUMNS = {"name": "name", "events": "count", "time": "at"}


class Thing(Model):
    name: str
    sizes: tuple[int, ...] = ()


def test_a_list_is_a_line_of_json_for_each_item(capsys):
    Output(json=True).items(ITEMS, COLUMNS)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ITEMS


def test_a_list_is_a_table_for_people(capsys):
    Output().items(ITEMS, COLUMNS)
    assert capsys.readouterr().out.splitlines() == [
        "name       events  time                ",
        "a\\x1b[31m   1,234  2026-01-31 12:00:00Z",
        "bb              5                      ",
    ]


def test_one_thing_is_a_line_of_json_or_a_line_for_each_member(capsys):
    Output(json=True).item(Thing(name="a", sizes=(1, 2)))
    Output().item(Thing(name="a", sizes=(1, 2)))
    Output().item(Thing(name="a"), {"name of it": "name"})
    out = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert out == ['{"name":"a","sizes":[1,2]}', "name   a", "sizes  1, 2", "name of it  a"]


LISTS = (
    [1, "1"],
    ["1", 1],
    [1, 1],
    ["a,b"],
    ["a", "b"],
    ["a, b"],
    ["a", ""],
    ["a", None],
    ["a", " "],
    ["yes", True],
    [[1]],
)


def test_lists_that_differ_look_different():
    assert len({shown(each) for each in LISTS}) == len(LISTS)
    assert [shown(each) for each in (["a", "b"], [1000, 2], [True], [])] == ["a, b", "1,000, 2", "yes", ""]


def test_a_line_has_the_text_or_the_value(capsys):
    Output().line({"a": 1}, "done\x07")
    Output(json=True).line({"a": 1}, "done")
    assert capsys.readouterr().out == 'done\\x07\n{"a":1}\n'


def test_without_a_terminal_a_question_needs_yes(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    confirm("Delete?", yes=True)
    with pytest.raises(Invalid, match="--yes"):
        confirm("Delete?", yes=False)


@pytest.mark.parametrize(("answer", "goes_on"), [("y", True), ("n", False), ("", False)])
def test_a_person_is_asked(monkeypatch, capsys, answer, goes_on):
    terminal = io.StringIO(f"{answer}\n")
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    if goes_on:
        confirm("Delete?", yes=False)
    else:
        with pytest.raises(NotConfirmed):
            confirm("Delete?", yes=False)
    assert capsys.readouterr() == ("", "Delete? [y/N]: ")


def test_a_person_types_the_name_of_what_will_be_lost(monkeypatch, capsys):
    terminal = io.StringIO("orders\nother\n")
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    confirm_name("All events will be deleted.", "orders")
    with pytest.raises(NotConfirmed):
        confirm_name("All events will be deleted.", "orders")
    assert capsys.readouterr() == ("", "All events will be deleted. Type its name to go on: " * 2)


NAME = "orders.of-the-european-warehouse.created-or-changed"
ID = "038fc871-1d2c-4e2e-aa29-1579e8f2e71f"
ROWS = [
    {"id": ID, "name": NAME, "owner": "warehouse-application", "at": "2026-01-31T12:00:00Z", "count": 1_234_567_890}
    | {"text": "a text of many words that goes on and on, and may be folded wherever it has a space"}
]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("shape", ["items", "item"])
def test_tables_never_break_names_ids_numbers_or_times(monkeypatch, capsys, width, shape):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    if shape == "items":
        Output().items(ROWS, {each: each for each in ROWS[0]})
    else:
        Output().item(ROWS[0])
    out = _plain(capsys)
    for whole in (NAME, ID, "warehouse-application", "12:00:00Z", "1,234,567,890"):
        assert whole in out
    widest = max(len(line.rstrip()) for line in out.splitlines())
    assert widest <= max(width, 160 if shape == "items" else 60)


def test_a_table_that_fits_is_not_wider_than_the_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    Output().items([{"id": ID, "text": "word " * 40}], {"id": "id", "text": "text"})
    assert max(map(len, _plain(capsys).splitlines())) <= 60


def _plain(capsys):
    """The output without styles."""
    return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)


def test_progress_is_for_terminals_alone(monkeypatch, capsys):
    for is_terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda answer=is_terminal: answer)
        with progress_bars() as show:
            show("fold", 1, 2)
        assert ("fold" in capsys.readouterr().err) == is_terminal
