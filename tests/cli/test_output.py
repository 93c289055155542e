"""Output of commands: tables for people, JSON lines for programs, and questions."""

import io
import json

import pytest

from rioni.cli.output import NotConfirmed, Output, confirm, confirm_name
from rioni.client.models.base import Model
from rioni.domain.errors import Invalid


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
