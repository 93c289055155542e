"""Writes the audit trail for people and for programs."""

from collections.abc import Iterable
from typing import Any, TextIO

from rioni.cli.terminal.output import console_on
from rioni.cli.terminal.tables import Column, actor_of, plain_table, value_at


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
