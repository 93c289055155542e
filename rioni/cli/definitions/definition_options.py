"""Options that say what an event type or subscription is, and the definition that they make."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rioni.cli.connections.session import Session
from rioni.domain.errors import Invalid


if TYPE_CHECKING:
    from rioni.cli.definitions.definition import Definition
    from rioni.client import EventType

DefinitionFile = Annotated[
    str | None,
    typer.Option(help="A definition in YAML or JSON; - is standard input. Options replace members of it."),
]
Attributes = Annotated[
    list[str], typer.Option(help="Who may do this, such as `service:shop`; may be repeated.", metavar="TYPE:VALUE")
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
    """Labels or annotations of texts such as `team=shop`; None if there are none."""
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
    from rioni.cli.definitions.definition import Definition
    from rioni.cli.definitions.files import document_in
    from rioni.cli.definitions.format import definition, kind_of
    from rioni.cli.terminal.yaml_text import Document

    document = Document({"kind": kind}, 0, {}) if file is None else document_in(file)
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


def created(session: Session, wanted: "Definition") -> "EventType":
    """Create an event type after all checks; raises Invalid."""
    from rioni.cli.definitions import planning

    name = wanted.members["name"]
    if planning.current_of(session.client, wanted) is not None:
        raise Invalid(f"There is an event type {name}; `rioni event-types edit {name}` changes it.")
    list(planning.carry_out(session.client, [planning.planned(session.client, wanted, None)]))
    return session.client.event_types.get(name)
