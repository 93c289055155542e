"""Commands of auditors on a broker's data: the audit trail, and what was at a time."""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from rioni.cli.host import checkpoints
from rioni.cli.host.options import ConfigFile, Data, load_settings
from rioni.cli.options import Json, log_time, moment
from rioni.cli.terminal.output import Output, console_on, opened, progress_bars, say
from rioni.cli.terminal.tables import Column, actor_of, plain_table, value_at


if TYPE_CHECKING:
    from rich.console import Console

    from rioni.operations.history import LogStep


# Commands of `rioni audit` that show the past: the entries of a resource, its state then, the differences since.

CHARACTERS_MAX = 160
"""Longer values are cut; `--json` has them whole."""
MEMBERS = ("position", "recorded_at", "actor", "realm", "topic")
"""The members of an entry that are shown before its changes."""
STYLES = {"+": "green", "-": "red", "~": "yellow"}

Resource = Annotated[
    str, typer.Argument(help="Kind and key, such as `event-type:order.created`; a name alone is that of an event type.")
]
MOMENT = "A position of the log, or a time: RFC 3339 or a day in UTC."


def log(resource: Resource, *, json: Json = False, data: Data = None, config_file: ConfigFile = None) -> None:
    """Show everything that ever happened to a resource.

    Oldest first: position, time, client, what happened, and each changed member (`+` added, `-` removed, `~` replaced;
    within the text of a schema after `>`). A resource is a kind and a key, such as `event-type:order.created` or
    `subscription:<id>`; a name alone is that of an event type, and `settings` the settings. `--json` prints an object a
    line, with whole values and both states. Like `show` and `diff` it only reads, while a broker is running or on a
    copy.
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
    end: Annotated[
        str | None, typer.Option("--to", help="The later moment, in the same forms; by default now.", metavar="MOMENT")
    ] = None,
    resource: Annotated[
        str | None, typer.Option(help="Only this one: `kind:name`, or the name of an event type.")
    ] = None,
    json: Json = False,
    data: Data = None,
    config_file: ConfigFile = None,
) -> None:
    """Show the differences between two moments.

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


def _line(step: "LogStep", more: Mapping[str, Any]) -> str:
    import orjson

    from rioni.domain.json_patch import json_patch

    changes = json_patch(step.before, step.after)
    item = {**more, "resource": step.resource, "changes": changes, "before": step.before, "after": step.after}
    return orjson.dumps(item, option=orjson.OPT_NON_STR_KEYS).decode() + "\n"


def _print_changes(console: "Console", step: "LogStep") -> None:
    for sign, text in _changes(step.before, step.after):
        console.print(f"  {sign} {text}", style=STYLES[sign], soft_wrap=True)


def _changes(before: Any, after: Any, above: str = "") -> Iterator[tuple[str, str]]:
    """Yield each change as a sign and a line: `+` for added, `-` for removed, `~` for replaced."""
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
        # Operations that remove or replace are ordered so that their paths in the old state are valid in turn.
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


# --- Writes the audit trail for people and for programs ---


def write_table(entries: Iterable[dict[str, Any]], file: TextIO) -> None:
    """Write the audit trail for people."""
    columns: dict[str, Column] = {
        "position": "position",
        "when": "recorded_at",
        "who": actor_of,
        "from": "client",
        "what": "topic",
        "resource": "resource",
    }
    table = plain_table(*columns, "how")
    for entry in entries:
        table.add_row(*(str(value_at(entry, column)) for column in columns.values()), _how(entry))
    console_on(file).print(table)


def write_json_lines(entries: Iterable[dict[str, Any]], file: TextIO) -> None:
    """Write the audit trail for programs, a JSON object a line."""
    import orjson

    for entry in entries:
        states = {name: orjson.Fragment(entry[name] or "null") for name in ("before", "after")}
        # The names of the columns are of a subclass of str.
        file.write(orjson.dumps(entry | states, option=orjson.OPT_NON_STR_KEYS).decode() + "\n")


def _how(entry: dict[str, Any]) -> str:
    import msgspec

    from rioni.domain.timelines.timeline import Timelines, describe_change

    if entry["resource_type"] != "timeline":
        return ""
    states = (entry[name] and msgspec.json.decode(entry[name], type=Timelines) for name in ("before", "after"))
    return describe_change(str(entry["topic"]), *states)


# --- Commands of auditors on a broker's data: the audit trail ---

app = typer.Typer(name="audit")


class AuditFormat(StrEnum):
    """The format of the audit trail."""

    TABLE = "table"
    JSONL = "jsonl"
    PARQUET = "parquet"


@app.callback(
    invoke_without_command=True,
    epilog="Example: rioni audit --since 2026-01-01 --actor jane --format jsonl --output audit.jsonl",
)
def audit(
    context: typer.Context,
    *,
    since: Annotated[str | None, typer.Option(help="First time, RFC 3339 or a day in UTC.", metavar="TIME")] = None,
    until: Annotated[str | None, typer.Option(help="End, not included.", metavar="TIME")] = None,
    actor: Annotated[str | None, typer.Option(help="Only what subjects of this name did.")] = None,
    realm: Annotated[str | None, typer.Option(help="Only what the actor of this realm did.")] = None,
    resource: Annotated[str | None, typer.Option(help="Name of what was changed, or `kind:name`.")] = None,
    form: Annotated[AuditFormat, typer.Option("--format", help="Parquet is written by Spark.")] = AuditFormat.TABLE,
    output: Annotated[Path | None, typer.Option(help="File to write; for Parquet a folder.")] = None,
    data: Data = None,
    config_file: ConfigFile = None,
    json: Json = False,
) -> None:
    """Read from the data on this host who changed what, when and from where: every administrative change ever made.

    Of timelines also how: what an event type has moved from and to. No broker is asked, nor by the other commands here
    but `list` and `denials`, which ask a running broker over HTTP for what its users may see; standard error names the
    source. The format `jsonl` has the states before and after, `parquet` is written by Spark, partitioned by day.
    """
    if context.invoked_subcommand is not None:
        return
    begin, end = _time(since), _time(until)
    if json and form is AuditFormat.TABLE:
        form = AuditFormat.JSONL
    if form is AuditFormat.PARQUET and output is None:
        raise typer.BadParameter("Parquet needs a folder to write to: --output FOLDER", param_hint="--format")
    settings = load_settings(config_file, data=data)
    from rioni.installation.database import damage_reported
    from rioni.operations import history as history_operations
    from rioni.projections.queries.audit_log import AuditFilter

    wanted = AuditFilter(since=begin, until=end, actor=actor, realm=realm, resource=resource)
    if form is AuditFormat.PARQUET and output is not None:
        with progress_bars() as progress:
            report = history_operations.export_audit(settings, output, wanted, progress)
        position, digest = report.head
        Output(json).line(
            {"folder": str(output), "entries": report.rows, "position": position, "log_hash": digest.hex()},
            f"{report.rows:,} entries written to {output}; the log ends at {position} with {digest.hex()}",
        )
        return
    write = write_table if form is AuditFormat.TABLE else write_json_lines
    entries = history_operations.audit(settings, wanted)
    first = [*islice(entries, 1)]
    with opened(output) as file, damage_reported():
        write(chain(first, entries), file)
    if not first and resource is not None and (near := history_operations.nearest_resource(settings, resource)):
        say(f"Did you mean {near}?", err=True)
    if form is AuditFormat.TABLE:
        source = settings.data if settings.database is None else "the database of its settings"
        say(f"Read on this host from {source}; `rioni audit list` asks a running broker.", err=True)


app.command(epilog="Example: rioni audit log event-type:order.created")(log)
app.command(epilog="Example: rioni audit show order.created --as-of 2026-01-31T12:00:00Z")(show)
app.command(epilog="Example: rioni audit diff --from 2026-01-01 --to 4711 --resource order.created")(diff)
app.command(epilog="Example: rioni audit checkpoint --output monday.checkpoint")(checkpoints.checkpoint)
app.command(epilog="Example: rioni audit export --to /srv/audit --format delta")(checkpoints.export)
app.command(epilog="Example: rioni audit prove 4711")(checkpoints.prove)
app.command("rotate-key", epilog="Example: rioni audit rotate-key --data /srv/rioni")(checkpoints.rotate_key)
app.command(epilog="Example: rioni audit consistency monday.checkpoint")(checkpoints.consistency)


def _time(text: str | None) -> str | None:
    return None if text is None else log_time(text)
