"""Commands of `rioni audit` that show what was: the entries of a resource, its state then, the differences since."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rioni.cli.host.options import ConfigFile, Data, load_settings
from rioni.cli.options import Json
from rioni.cli.terminal.output import Output, console_on, opened
from rioni.cli.terminal.tables import actor_of
from rioni.cli.terminal.times import moment


if TYPE_CHECKING:
    from rich.console import Console

    from rioni.operations.history import Step


CHARACTERS_MAX = 160
"""Longer values are cut; `--json` has them whole."""
MEMBERS = ("position", "recorded_at", "actor", "realm", "topic")
"""Of an entry, before what it changed."""
STYLES = {"+": "green", "-": "red", "~": "yellow"}

Resource = Annotated[
    str, typer.Argument(help="Kind and key, such as `event-type:order.created`; a name alone is that of an event type.")
]
MOMENT = "A position of the log, or a time: RFC 3339 or a day in UTC."


def log(resource: Resource, *, json: Json = False, data: Data = None, config_file: ConfigFile = None) -> None:
    """Show everything that ever happened to a resource.

    Oldest first: position, time, client, what happened, and each changed member (`+` added, `-` removed, `~` replaced;
    within the text of a schema behind `>`). A resource is a kind and a key, such as `event-type:order.created` or
    `subscription:<id>`; a name alone is that of an event type, and `settings` the settings. `--json` prints an object a
    line, with whole values and both states. Like `show` and `diff` it only reads, beside a running broker or on a copy.
    """
    settings = load_settings(config_file, data=data)
    from rioni.operations import history as history_operations

    with opened(None) as file:
        console = console_on(file)
        for step in history_operations.history(settings, resource):
            entry = step.entry or {}
            if json:
                file.write(_line(step, {name: entry[name] for name in MEMBERS}))
                continue
            where = f" from {entry['client']}" if entry["client"] else ""
            console.print(
                f"{entry['position']}  {entry['recorded_at']}  {actor_of(entry)}{where}  {entry['topic']}",
                style="bold",
                soft_wrap=True,
            )
            _print_changes(console, step)


def show(
    resource: Resource,
    *,
    as_of: Annotated[str | None, typer.Option(help=f"{MOMENT} By default now.", metavar="MOMENT")] = None,
    data: Data = None,
    config_file: ConfigFile = None,
    json: Json = False,
) -> None:
    """Show a resource as it was, as JSON; with `--json` in one line."""
    settings = load_settings(config_file, data=data)
    import orjson

    from rioni.operations import history as history_operations

    _, state = history_operations.state_as_of(settings, resource, None if as_of is None else moment(as_of))
    Output(json).line(state, orjson.dumps(state, option=orjson.OPT_INDENT_2).decode())


def diff(
    *,
    start: Annotated[str, typer.Option("--from", help=f"{MOMENT} 0 is an empty broker.", metavar="MOMENT")],
    end: Annotated[str | None, typer.Option("--to", help="Likewise; by default now.", metavar="MOMENT")] = None,
    resource: Annotated[
        str | None, typer.Option(help="Only this one: `kind:name`, or the name of an event type.")
    ] = None,
    json: Json = False,
    data: Data = None,
    config_file: ConfigFile = None,
) -> None:
    """Show what is different at two moments.

    Resource by resource. Output and `--json` are those of `rioni audit log`.
    """
    settings = load_settings(config_file, data=data)
    from rioni.operations import history as history_operations

    last = None if end is None else moment(end)
    with opened(None) as file:
        console = console_on(file)
        for step in history_operations.differences(settings, moment(start), last, resource):
            if json:
                file.write(_line(step, {}))
                continue
            console.print(step.resource, style="bold", soft_wrap=True)
            _print_changes(console, step)


def _line(step: "Step", more: Mapping[str, Any]) -> str:
    import orjson

    from rioni.domain.json_patch import json_patch

    changes = json_patch(step.before, step.after)
    item = {**more, "resource": step.resource, "changes": changes, "before": step.before, "after": step.after}
    return orjson.dumps(item, option=orjson.OPT_NON_STR_KEYS).decode() + "\n"


def _print_changes(console: "Console", step: "Step") -> None:
    for sign, text in _changes(step.before, step.after):
        console.print(f"  {sign} {text}", style=STYLES[sign], soft_wrap=True)


def _changes(before: Any, after: Any, above: str = "") -> Iterator[tuple[str, str]]:
    """What has changed, a line each: `+` was added, `-` removed, `~` replaced."""
    from rioni.domain.json_patch import json_patch

    if not above and (before is None or after is None):
        sign, members = ("+", after) if before is None else ("-", before)
        yield from ((sign, f"/{name}: {_shown(value)}") for name, value in (members or {}).items())
        return
    for operation in json_patch(before, after):
        path, new = operation["path"], operation.get("value")
        where = f"{above}{path}"
        if operation["op"] == "add":
            yield "+", f"{where}: {_shown(new)}"
            continue
        # Operations that remove or replace come in an order in which the places of the state before still hold.
        old = _at(before, path)
        if operation["op"] == "remove":
            yield "-", f"{where}: {_shown(old)}"
        elif (texts := _objects_in(old, new)) is not None and not above:
            yield from _changes(*texts, f"{where} > ")
        else:
            yield "~", f"{where}: {_shown(old)} -> {_shown(new)}"


def _at(value: Any, path: str) -> Any:
    from rioni.domain.json_patch import names

    for key in names(path):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def _objects_in(old: Any, new: Any) -> tuple[Any, Any] | None:
    """The objects that two texts, such as schemas, are the JSON of."""
    import msgspec

    if not isinstance(old, str) or not isinstance(new, str):
        return None
    try:
        return msgspec.json.decode(old, type=dict), msgspec.json.decode(new, type=dict)
    except (msgspec.DecodeError, RecursionError):
        return None


def _shown(value: Any) -> str:
    import orjson

    text = orjson.dumps(value).decode()
    return text if len(text) <= CHARACTERS_MAX else f"{text[:CHARACTERS_MAX]}..."
