"""How users say what an event type or subscription is: by options, or in their editor."""

import dataclasses
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rioni.cli.connections.session import BrokerSession
from rioni.cli.definitions import printing
from rioni.cli.terminal.output import confirm
from rioni.domain.errors import Invalid


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rioni.cli.definitions.definition import Definition
    from rioni.cli.definitions.steps import Resource, Step
    from rioni.client import EventType


# --- Options that describe an event type or subscription, and the definition that they make ---

DefinitionFile = Annotated[
    str | None,
    typer.Option(help="A definition in YAML or JSON; - is standard input. Options replace members of it."),
]
Attributes = Annotated[
    list[str], typer.Option(help="Subject, such as `service:shop`; may be repeated.", metavar="TYPE:VALUE")
]
Labels = Annotated[list[str], typer.Option(help="A label; may be repeated.", metavar="KEY=VALUE")]
Annotations = Annotated[list[str], typer.Option(help="An annotation; may be repeated.", metavar="KEY=VALUE")]


def attributes(**lists: Sequence[str]) -> dict[str, Any] | None:
    """An authorization section of the lists that have any attribute; None if none has."""
    from rioni.client import Attribute

    try:
        section = {
            name: [Attribute.parse(text).members() for text in texts_] for name, texts_ in lists.items() if texts_
        }
    except ValueError as ex:
        raise typer.BadParameter(str(ex)) from ex
    return section or None


def texts(pairs: Sequence[str]) -> dict[str, str] | None:
    """Labels or annotations from texts such as `team=shop`; None if no texts are given."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{pair} is not a label or annotation; write KEY=VALUE")
        found[key] = value
    return found or None


def asked(kind: str, file: str | None, given: Mapping[str, Any]) -> "Definition":
    """The definition of a file, with what options replace in it.

    Args:
        kind: `event-type` or `subscription`.
        file: its path, if there is one; `-` is standard input.
        given: members by options; None for those that are not given.

    Raises:
        Invalid: all that is wrong with it.
    """
    from rioni.cli.definitions.definition import Definition, definition, kind_of
    from rioni.cli.definitions.files import document_in
    from rioni.cli.terminal.json_and_yaml import Document

    document = Document({"kind": kind}, 0) if file is None else document_in(file)
    options = {name: value for name, value in given.items() if value is not None}
    if isinstance(document.value, dict):
        if kind_of(document.value) != kind:
            raise Invalid(f"{file}:{document.line} is no definition of the kind {kind}.")
        kept = {
            name: value for name, value in document.value.items() if name != "schema" or "schema_file" not in options
        }
        document = document._replace(value={"kind": kind, **kept, **options})
    found = definition(document, file or "options", anywhere="schema_file" in options)
    if not isinstance(found, Definition):
        if file is None:
            text = "; ".join(dict.fromkeys(each.text for each in found))
            raise Invalid(f"{text}{'' if text.endswith('?') else '.'} See the options with --help.")
        raise Invalid("; ".join(map(str, found)))
    return found


def created(session: BrokerSession, wanted: "Definition") -> "EventType":
    """Create an event type after all checks; raises Invalid."""
    from rioni.cli.definitions import planning

    name = wanted.members["name"]
    if planning.current_of(session.client, wanted) is not None:
        raise Invalid(f"There is an event type {name}; `rioni event-types edit {name}` changes it.")
    list(planning.carry_out(session.client, [planning.planned(session.client, wanted, None)]))
    return session.client.event_types.get(name)


# --- Changes an event type or subscription in the user's editor, without losing the user's text ---

ROUNDS_MAX = 100
"""The most times that the editor is opened, for editors that are programs."""
COMMENT = "#| "
"""The prefix of lines that this command writes for the user to read."""
WORDS = (
    "Members that are removed keep their values; {} and [] empty them.",
    "Leave the text as it is to change nothing.",
)


class _Refused(Exception):
    """The edited text can't be used.

    Args:
        reasons: pairs of a line, or None, and the error there.
    """

    def __init__(self, reasons: "Iterable[tuple[int | None, str]]") -> None:
        self.reasons = list(reasons)
        # The text will follow the comments, of which there is one for each reason.
        below = len(self.reasons)
        self.texts = tuple(text if line is None else f"line {line + below}: {text}" for line, text in self.reasons)
        super().__init__("; ".join(self.texts))


def as_yaml(resource: "Resource") -> str:
    """The definition of an event type or subscription, for people."""
    from rioni.cli.definitions.definition import document_of
    from rioni.cli.terminal.json_and_yaml import written

    return written(document_of(_kind(resource), resource.members()))


def edit(session: BrokerSession, read: "Callable[[], Resource]", *, yes: bool) -> None:
    """Let the user change a resource, and change it.

    Args:
        session: of the command.
        read: gets the resource as it is now.
        yes: whether nothing is asked.

    Raises:
        Invalid: there is no editor, or the edited text can't be used; its file is named.
    """
    current = read()
    handle, name = tempfile.mkstemp(prefix="rioni-", suffix=".yaml")
    os.close(handle)
    file = Path(name)
    try:
        _rounds(session, read, current, file, yes=yes)
    except BaseException:
        # The text is kept even if the command ends by Ctrl-C.
        if file.exists() and _without_comments(file.read_bytes().decode(errors="replace")) not in (
            "",
            as_yaml(current),
        ):
            session.output.note(f"What was written is in {file}.")
        else:
            file.unlink(missing_ok=True)
        raise
    file.unlink(missing_ok=True)


def _rounds(
    session: BrokerSession, read: "Callable[[], Resource]", current: "Resource", file: Path, *, yes: bool
) -> None:
    from rioni.cli.definitions.planning import ChangedMeanwhile

    text = as_yaml(current)
    said: Sequence[str] = WORDS
    first, refused = True, False
    for _ in range(ROUNDS_MAX):
        written = _edited(file, said, text)
        if not written.strip() or (first and written == text):
            session.output.note("Nothing was changed.")
            return
        if refused and written == text:
            raise Invalid(f"Nothing was changed: {' '.join(said)}")
        text, first, refused = written, False, False
        try:
            _change(session, current, text, yes=yes)
        except _Refused as ex:
            said, refused = ex.texts, True
        except ChangedMeanwhile:
            current, said = _changed_meanwhile(current, read())
        else:
            return
    raise Invalid("The editor was opened too often.")


def _change(session: BrokerSession, current: "Resource", text: str, *, yes: bool) -> None:
    from rioni.cli.definitions.planning import carry_out
    from rioni.client import Problem

    try:
        step = _step(session, current, text)
        if not session.output.json:
            printing.show_steps([step])
        if step.action != "keep":
            confirm(f"Do this on {session.connection.url}?", yes=yes)
            list(carry_out(session.client, [step]))
    except Problem as ex:
        raise _Refused([(None, str(ex))]) from ex
    printing.write_step(session.output, step, "unchanged" if step.action == "keep" else "done")


def _step(session: BrokerSession, current: "Resource", text: str) -> "Step":
    from rioni.cli.definitions.definition import Definition, SourceLocation, definition
    from rioni.cli.definitions.files import parsed
    from rioni.cli.definitions.planning import planned
    from rioni.cli.terminal.json_and_yaml import NotYaml

    try:
        documents = list(parsed(text, "edited.yaml"))
    except NotYaml as ex:
        raise _Refused([(ex.line, ex.reason)]) from ex
    if len(documents) != 1:
        raise _Refused([(None, f"There are {len(documents)} definitions instead of one.")])
    found = definition(documents[0], "edited.yaml")
    if not isinstance(found, Definition):
        raise _Refused((each.place.line, each.text) for each in found)
    if found.key != Definition(_kind(current), current.members(), SourceLocation("", 0)).key:
        raise _Refused([(None, "It would be another one, which `rioni event-types apply` creates.")])
    try:
        return dataclasses.replace(planned(session.client, found, current), place=None)
    except Invalid as ex:
        raise _Refused((None, line) for line in str(ex).splitlines()) from ex


def _changed_meanwhile(before: "Resource", now: "Resource") -> "tuple[Resource, tuple[str, ...]]":
    from rioni.cli.definitions.steps import Step

    changes = printing.lines_of_changes(Step(_kind(now), before, now.members()))
    return now, ("It was changed meanwhile; the definition below would undo this:", *changes)


def _edited(file: Path, said: "Sequence[str]", text: str) -> str:
    """Let the user edit a text, and return it without the comments above it; raises Invalid."""
    comments = "".join(f"{COMMENT}{line}\n" for line in said)
    file.write_text(comments + text, encoding="utf-8")
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    try:
        done = subprocess.run([*command, str(file)], check=False)
    except OSError as ex:
        raise Invalid(f"The editor {command[0]} can't be started: {ex.strerror}; set EDITOR to another one.") from ex
    if done.returncode != 0:
        raise Invalid(f"The editor ended with code {done.returncode}; nothing was changed.")
    try:
        return _without_comments(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as ex:
        raise Invalid(f"What the editor left in {file} can't be read: {ex}; nothing was changed.") from ex


def _without_comments(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(COMMENT))


def _kind(resource: "Resource") -> str:
    from rioni.cli.definitions.definition import EVENT_TYPE, SUBSCRIPTION
    from rioni.wire.event_types import EventType

    return EVENT_TYPE if isinstance(resource, EventType) else SUBSCRIPTION
