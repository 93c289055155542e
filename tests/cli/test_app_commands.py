"""Options of the connection stand before a command as well as after it, in whatever group it is."""

from itertools import pairwise

import pytest
from typer.main import get_command

from rioni.cli.app import CONNECTION, app
from tests.support.command_tree import leaves


COMMANDS = leaves(app)
CONNECTED = [words for words, command in COMMANDS.items() if any("--context" in each.opts for each in command.params)]
LOCAL = [words for words in COMMANDS if words not in CONNECTED]


@pytest.mark.parametrize("width", [60, 79, 80, 100, 120])
def test_no_help_breaks_the_name_of_an_option(run, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    broken = {}
    for words, command in COMMANDS.items():
        code, out, _ = run(*words, "--help")
        assert code == 0, words
        if lacking := [
            each for param in command.params for each in param.opts if each.startswith("-") and each not in out
        ]:
            broken[" ".join(words)] = lacking
    assert broken == {}


def test_each_option_of_seconds_or_days_has_a_greatest_value():
    """The operating system, and the calendar, end somewhere."""
    unbounded = {
        f"{' '.join(words)} {each.opts[0]}"
        for words, command in COMMANDS.items()
        for each in command.params
        if (each.type_descriptor.annotation is float or "days" in each.name) and each.max is None
    }
    assert unbounded == set()


@pytest.mark.parametrize("value", ["nan", "inf", "1e308", "1e400", "99999999999", "1" + "0" * 30])
@pytest.mark.parametrize("words", [("version",), ("metrics",)], ids=" ".join)
def test_no_timeout_is_beyond_what_the_system_can_wait(run, words, value):
    code, out, err = run("monitoring", *words, "--timeout", value)
    assert (code, out) == (2, "")
    assert "--timeout" in err


@pytest.mark.parametrize(
    "words",
    [
        ("tokens", "create", "--days", "3000000", "--uid", "shop"),
        ("tokens", "create", "--uid", "shop", "--days", "1" + "0" * 30),
        ("event-types", "create", "orders", "--owning-application", "shop", "--retention-days", "inf"),
        ("audit", "list", "--limit", "1" + "0" * 30),
        ("witness", "--state", "state", "--every", "1e300"),
        ("archive", "--to", "lake", "--every", "1e300"),
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_no_number_is_beyond_what_it_is_for(run, words):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.startswith("Error: Invalid value for '--")


def test_most_commands_ask_a_broker():
    assert ("tail",) in CONNECTED
    assert ("audit", "list") in CONNECTED
    assert ("verify",) in LOCAL
    assert ("audit", "log") in LOCAL


@pytest.mark.parametrize("words", CONNECTED, ids=" ".join)
def test_options_of_the_connection_stand_before_a_command_between_its_words_and_behind(words):
    options = ["--context", "x", "--url=http://h", "--token", "t", "--json"]
    root = _root()
    behind = [*words, *options, "argument", "--option"]
    assert root._reordered([*options, *words, "argument", "--option"]) == behind
    without_json = options[:-1]  # which `rioni audit` has, too
    between = [words[0], *without_json, *words[1:], "--json", "argument", "--option"]
    assert root._reordered(between) == behind
    assert root._reordered(behind) == behind


@pytest.mark.parametrize("option", sorted(CONNECTION))
def test_each_command_that_asks_a_broker_has_all_of_these_options(option):
    for words in CONNECTED:
        assert any(option in each.opts for each in COMMANDS[words].params), words


def test_the_connection_of_an_option_before_the_command_is_used(run, broker):
    assert run("--url", broker.url, "monitoring", "health")[0] == 0
    assert run("monitoring", "--url", broker.url, "health")[0] == 0
    code, _, err = run("--context", "x", "monitoring", "health")
    assert (code, err) == (2, "Error: There is no context x; there are: none. `rioni context add` makes one.\n")


@pytest.mark.parametrize("words", [("audit",), ("audit", "log", "x"), ("audit", "checkpoint")], ids=" ".join)
@pytest.mark.parametrize(
    "option", [("--context", "x"), ("--url=http://h",), ("--token", "t")], ids=lambda each: each[0]
)
def test_commands_for_auditors_say_whether_they_ask_a_broker(run, words, option):
    for arguments in ([*option, *words], [*words, *option]):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        said = " ".join(err.replace("│", " ").split())
        assert "reads the data of a broker on its host, and asks none." in said
        assert "`rioni audit list`" in said


def test_other_commands_on_the_host_refuse_the_options(run):
    code, _, err = run("--context", "x", "verify")
    assert code == 2
    assert "No such option: --context" in err


def test_options_without_a_command_show_the_help(run):
    assert "Usage: rioni" in "".join(run("--context", "x")[1:])


def test_what_follows_two_dashes_is_no_option():
    words = ["publish", "--", "--context", "x"]
    assert _root()._reordered(words) == words
    assert all(one != two for one, two in pairwise(words))


def _root():
    return get_command(app)
