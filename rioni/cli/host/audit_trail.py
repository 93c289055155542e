"""Writes the audit trail for people and for programs."""

from collections.abc import Iterable
from typing import Any, TextIO

from rioni.cli.output import console_on
from rioni.cli.tables import plain_table


def write_table(entries: Iterable[dict[str, Any]], file: TextIO) -> None:
    """Write the audit trail for people."""
    columns = {
        "position": "position",
        "when": "recorded_at",
        "who": "actor",
        "from": "client",
        "what": "topic",
        "resource": "resource",
    }
    table = plain_table(*columns, "how")
    for found in entries:
        realm = found["realm"]
        entry = found | {"actor": f"{found['actor']} ({realm})"} if realm else found
        table.add_row(*(str(entry[name]) for name in columns.values()), _how(entry))
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

    from rioni.domain.timelines.timeline import Timelines
    from rioni.domain.timelines.timeline_description import describe_change

    if entry["resource_type"] != "timeline":
        return ""
    states = (entry[name] and msgspec.json.decode(entry[name], type=Timelines) for name in ("before", "after"))
    return describe_change(str(entry["topic"]), *states)
