"""`rioni event-types edit` and `rioni subscriptions edit`: with editors that are scripts."""

import json
import re
import stat
from pathlib import Path

import pytest

from rioni.client import EventType, Schema, Subscription


@pytest.fixture
def event_type(client, name):
    wanted = EventType(name=name, owning_application="shop", schema=Schema.json({}), labels={"team": "shop"})
    return client.event_types.create(wanted)


@pytest.fixture
def editor(monkeypatch):
    """Sets the editor: each time it is opened the next lines of shell are run on the file, which is kept before."""

    def set_editor(*rounds):
        Path("scripts").mkdir()
        for number, lines in enumerate(rounds, 1):
            Path(f"scripts/{number}").write_text(lines)
        program = Path("editor.sh")
        program.write_text(
            "#!/bin/sh\nn=$(($(cat n 2>/dev/null || echo 0) + 1))\necho $n > n\n"
            'cp "$1" seen$n\nif [ -f scripts/$n ]; then . scripts/$n; fi\n'
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("VISUAL", f"{program.absolute()}")

    return set_editor


def comments(number):
    return [line for line in Path(f"seen{number}").read_text().splitlines() if line.startswith("#")]


def kept_file(err):
    path = Path(re.search(r"^What was written is in (\S+)\.$", err, re.MULTILINE)[1])
    text = path.read_text()
    path.unlink()
    return text


def test_what_is_written_is_shown_and_applied(rioni, client, event_type, editor):
    editor('sed -i "s/team: shop/team: pay/" "$1"')
    code, out, err = rioni("event-types", "edit", event_type.name, "--yes")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"~ event-type {event_type.name}",
        '  ~ labels.team: "shop" -> "pay"',
        "1 to change, 0 unchanged.",
        f"event-type {event_type.name}: changed",
    ]
    assert client.event_types.get(event_type.name).labels == {"team": "pay"}


def test_a_text_that_is_left_as_it_is_changes_nothing(rioni, client, event_type, editor):
    editor("")
    assert rioni("event-types", "edit", event_type.name) == (0, "", "Nothing was changed.\n")
    assert client.event_types.get(event_type.name) == event_type
    assert comments(1) == [
        "#| Members that are removed keep their values; {} and [] empty them.",
        "#| Leave the text as it is to change nothing.",
    ]


def test_the_editor_opens_again_until_the_text_is_right(rioni, client, event_type, editor):
    editor(
        'sed -i "s/^labels:/labels: [/" "$1"',
        'sed -i "s/^labels: \\[/labels:/; s/^audience/x/; s/team: shop/team: 1/" "$1"',
        'sed -i "s/team: 1/team: pay/; s/^category: business/category: data/" "$1"',
        'sed -i "s/^category: data/category: business/; s/retention_time: .*/retention_time: 90000000/" "$1"',
    )
    code, _, err = rioni("event-types", "edit", event_type.name, "--yes")
    assert (code, err) == (0, "")
    assert comments(2)[0].startswith("#| line ")
    assert comments(3) == [f'#| line {_line_of(3, "team: 1")}: labels.team is a text: write "1", in quotes']
    assert comments(4)[0].startswith("#| Category change is allowed only from")
    found = client.event_types.get(event_type.name)
    assert (found.labels, found.options.retention_time) == ({"team": "pay"}, 90_000_000)


def _line_of(number, text):
    lines = Path(f"seen{number}").read_text().splitlines()
    return next(index for index, line in enumerate(lines, 1) if text in line)


def test_a_change_by_another_client_is_shown_before_it_is_overwritten(rioni, client, event_type, editor, run):
    editor(
        'sed -i "s/team: shop/team: pay/" "$1"\n'
        f"curl --silent --fail -X PUT -H 'Content-Type: application/json' -d @other.json "
        f"$RIONI_URL/event-types/{event_type.name}",
        "",
    )
    other = EventType.of({**event_type.members(), "audience": "external-public"})
    Path("other.json").write_text(json.dumps(other.members()))
    code, out, _ = rioni("event-types", "edit", event_type.name, "--yes")
    assert code == 0
    assert comments(2) == [
        "#| It was changed meanwhile; the definition below would undo this:",
        '#| + audience: "external-public"',
    ]
    assert out.count('~ labels.team: "shop" -> "pay"') == 2
    found = client.event_types.get(event_type.name)
    # A member that the text lacks keeps its value.
    assert (found.labels, found.audience) == ({"team": "pay"}, "external-public")


def test_what_was_written_is_kept_where_it_is_not_used(rioni, client, event_type, editor):
    editor('sed -i "s/^labels:/lables:/" "$1"')
    code, out, err = rioni("event-types", "edit", event_type.name, "--yes")
    assert (code, out) == (2, "")
    assert "Nothing was changed: line" in err
    assert "lables:" in kept_file(err)
    assert client.event_types.get(event_type.name) == event_type


def test_what_was_written_is_kept_where_it_is_not_confirmed(rioni, client, event_type, editor):
    editor('sed -i "s/team: shop/team: pay/" "$1"')
    code, _, err = rioni("event-types", "edit", event_type.name, stdin="")
    assert code == 2
    assert "There is no terminal to ask on" in err
    assert "team: pay" in kept_file(err)
    assert client.event_types.get(event_type.name) == event_type


def test_what_is_no_text_is_kept(rioni, event_type, editor):
    editor('printf "\\377" >> "$1"')
    code, _, err = rioni("event-types", "edit", event_type.name, "--yes")
    assert code == 2
    assert "can't be read: 'utf-8' codec" in err
    path = Path(re.search(r"^What was written is in (\S+)\.$", err, re.MULTILINE)[1])
    assert path.read_bytes().endswith(b"\377")
    path.unlink()


def test_an_editor_may_remove_the_file(rioni, event_type, editor):
    editor('rm "$1"')
    code, _, err = rioni("event-types", "edit", event_type.name, "--yes")
    assert code == 2
    assert "No such file or directory" in err
    assert "What was written" not in err


def test_another_name_is_not_a_change(rioni, event_type, editor):
    editor('sed -i "s/^name: /name: other-/" "$1"')
    code, _, err = rioni("event-types", "edit", event_type.name, "--yes")
    assert code == 2
    assert "It would be another one, which `rioni event-types apply` creates." in err
    assert "name: other-" in kept_file(err)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("false", "The editor ended with code 1; nothing was changed."),
        ("no-such-editor", "The editor no-such-editor can't be started: No such file or directory"),
    ],
)
def test_an_editor_that_fails_changes_nothing(rioni, event_type, monkeypatch, command, error):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", command)
    code, _, err = rioni("event-types", "edit", event_type.name)
    assert code == 2
    assert error in err
    assert "What was written" not in err


def test_subscriptions_are_edited_alike(rioni, client, event_type, editor):
    subscription = client.subscriptions.create(Subscription(owning_application="shop", event_types=[event_type.name]))
    editor('sed -i "s/^labels: {}/labels: {team: pay}/; s/^read_from: end/read_from: begin/" "$1"')
    code, out, _ = rioni("subscriptions", "edit", subscription.id, "--yes", "--json")
    assert code == 0
    assert '"changes":[{"path":"labels.team","after":"pay"}],"notes":["read_from stays end' in out
    assert client.subscriptions.get(subscription.id).labels == {"team": "pay"}
