"""Output of event types, and of plans that change them, for people and programs."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rioni.cli.connections.session import BrokerSession
from rioni.cli.terminal.output import Output, confirm, console_on, say
from rioni.cli.terminal.tables import Column
from rioni.domain.errors import RioniError
from rioni.domain.texts import visible


if TYPE_CHECKING:
    from rioni.cli.definitions.definition import ChangedValue, DefinitionError
    from rioni.cli.definitions.steps import Step


# --- Event types in tables ---

DAY_MS = 86_400_000


def _partitioning(item: Any) -> str:
    fields = ", ".join(item["partition_key_fields"])
    return (
        f"{item['partition_strategy']} of {fields}"
        if item["partition_strategy"] == "hash"
        else item["partition_strategy"]
    )


def _retention(item: Any) -> str | None:
    retention = item["options"].get("retention_time")
    return None if retention is None or item["cleanup_policy"] == "compact" else f"{retention / DAY_MS:.3g} days"


def attributes_of(item: Any, kind: str) -> str:
    """Return the attributes in a list of the authorization section; `everybody` if there is no such section."""
    section = item["authorization"]
    return (
        "everybody" if section is None else ", ".join(f"{each['data_type']}:{each['value']}" for each in section[kind])
    )


def pairs_of(values: Mapping[str, str]) -> Sequence[str]:
    """Labels or annotations."""
    return [f"{name}={value}" for name, value in values.items()]


MEMBERS: dict[str, Column] = {
    "name": "name",
    "owning application": "owning_application",
    "category": "category",
    "partitions by": _partitioning,
    "parallelism": lambda item: (item["default_statistic"] or {}).get("read_parallelism"),
    "cleanup policy": "cleanup_policy",
    "retention": _retention,
    "compatibility": "compatibility_mode",
    "audience": "audience",
    "admins": lambda item: attributes_of(item, "admins"),
    "readers": lambda item: attributes_of(item, "readers"),
    "writers": lambda item: attributes_of(item, "writers"),
    "labels": lambda item: pairs_of(item["labels"]),
    "annotations": lambda item: pairs_of(item["annotations"]),
    "created": "created_at",
    "changed": "updated_at",
    "schema": lambda item: f"{item['schema']['type']} {item['schema']['version']}",
}
"""The values of one event type that are shown before its schema."""
COLUMNS: dict[str, Column] = {
    "name": "name",
    "owner": "owning_application",
    "category": "category",
    "partitions by": _partitioning,
    "cleanup": "cleanup_policy",
    "retention": _retention,
    "compatibility": "compatibility_mode",
    "schema": "schema.version",
    "changed": "updated_at",
}


# --- Plans of changes for people and for programs ---

VALUE_CHARACTERS_MAX = 300
"""The most characters of a value in a line for people; `--json` has all of it."""
MARKS = {"create": ("+", "green"), "change": ("~", "yellow"), "delete": ("-", "red")}

Line = tuple[str, str]
"""A text and its style."""


def counted(count: int, noun: str) -> str:
    """A number with its noun, such as `1 problem`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def show_steps(steps: Sequence["Step"]) -> None:
    """Show people what steps do, and how many there are of each kind."""
    _print(line for each in steps if each.action != "keep" or each.notes for line in _lines_of(each))
    counts = {action: sum(each.action == action for each in steps) for action in (*MARKS, "keep")}
    changed = [f"{count:,} to {action}" for action, count in counts.items() if count and action != "keep"]
    say(", ".join([*changed, f"{counts['keep']:,} unchanged"]) + ".")


def write_step(output: Output, step: "Step", status: str) -> None:
    """Write a step as a line of JSON, or as a sentence if it was done.

    Args:
        output: of the command.
        step: the step.
        status: `planned`, `done` or `unchanged`.
    """
    past = {"create": "created", "change": "changed", "delete": "deleted"}
    if output.json:
        output.line(step.as_json() | {"status": status}, "")
    elif status == "done":
        output.line(None, f"{step.kind} {step.name}: {past[step.action]}")


def lines_of_changes(step: "Step") -> list[str]:
    """The changes of a step as lines, without colours."""
    return [visible(text) for text, _ in map(_line_of, step.changes)]


def show_differences(output: Output, found: Iterable["ChangedValue"]) -> None:
    """Show differences, one a line."""
    if output.json:
        output.items((each.as_json() for each in found), {})
    else:
        _print(map(_line_of, found))


def report(output: Output, problems: Iterable["DefinitionError"]) -> None:
    """Report the problems on stderr."""
    for each in problems:
        output.note(str(each))


def carry_out(session: BrokerSession, steps: Sequence["Step"], *, yes: bool) -> None:
    """Show steps, ask whether to do them, and do them one after the other.

    Each step is reported as soon as it is done; an error reports how many were not done.
    """
    from rioni.cli.definitions import planning
    from rioni.client import ClientError

    if not session.output.json:
        show_steps(steps)
    left = [each for each in steps if each.action != "keep"]
    if left:
        confirm(f"Do this on {session.connection.url}?", yes=yes)
    for each in steps:
        if each.action == "keep":
            write_step(session.output, each, "unchanged")
    done = 0
    try:
        for each in planning.carry_out(session.client, left):
            write_step(session.output, each, "done")
            done += 1
    except (ClientError, RioniError) as ex:
        ex.add_note(f"{done:,} of {len(left):,} changes were made; the same command plans the others.")
        raise


def _lines_of(step: "Step") -> Iterator[Line]:
    from rioni.cli.definitions.definition import document_of
    from rioni.cli.terminal.json_and_yaml import written

    mark, style = MARKS.get(step.action, (" ", ""))
    place = f"  ({step.place})" if step.place else ""
    yield f"{mark} {step.kind} {step.name}{place}", f"bold {style}"
    if step.action == "create":
        assert step.after is not None
        yield from ((f"    {line}", style) for line in written(document_of(step.kind, step.after)).splitlines())
    elif step.action == "change":
        yield from ((f"  {text}", each) for text, each in map(_line_of, step.changes))
    if step.partitions is not None:
        yield f"    partitions are added: {step.partitions}; keys may move to other ones, and it can't be undone", ""
    yield from ((f"    {note}", "") for note in step.notes)


def _line_of(difference: "ChangedValue") -> Line:
    from msgspec import UNSET

    from rioni.cli.definitions.definition import dotted

    path = dotted(difference.path) or "(all)"
    show: Callable[[Any], str] = _duration if path == "options.retention_time" else _shown
    if difference.before is UNSET:
        return f"+ {path}: {show(difference.after)}", "green"
    if difference.after is UNSET:
        return f"- {path}: {show(difference.before)}", "red"
    return f"~ {path}: {show(difference.before)} -> {show(difference.after)}", "yellow"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[:VALUE_CHARACTERS_MAX]}..."


def _duration(value: Any) -> str:
    return f"{value} ms ({value / DAY_MS:.3g} days)" if isinstance(value, int) else _shown(value)


def _print(lines: Iterable[Line]) -> None:
    from rich.text import Text

    console = console_on(sys.stdout)
    for text, style in lines:
        console.print(Text(visible(text), style=style), soft_wrap=True)
