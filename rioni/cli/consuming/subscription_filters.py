"""The command that tries filters of subscriptions."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.session import Session, connected
from rioni.cli.terminal.exit_codes import FOUND
from rioni.cli.terminal.output import as_sentence


if TYPE_CHECKING:
    from rioni.client import FilterEvaluation

app = typer.Typer(name="subscriptions", no_args_is_help=True, help="Subscriptions: who reads, and how far they are.")

EVENTS_AT_ONCE = 20
"""What the API takes."""


@app.command(
    "try-filter", epilog="Example: rioni subscriptions try-filter 'event.total > 100 && has(event.coupon)' events.jsonl"
)
@connected
def try_filter(
    session: Session,
    expression: Annotated[str, typer.Argument(help="A CEL expression over `event`.", metavar="FILTER")],
    file: Annotated[
        str | None, typer.Argument(help="Events, a JSON object a line; by default those of standard input.")
    ] = None,
    *,
    event_type: Annotated[
        list[str] | None,
        typer.Option(
            help="Compare it with the schema of this event type; may be repeated.",
            autocompletion=completions.event_types,
        ),
    ] = None,
) -> None:
    """Try a [filter](reference/subscriptions.md#filters) on events, and see which of its parts decides.

    Exit code 1 if no event matches.
    """
    import msgspec

    from rioni.cli.publishing.event_files import json_events
    from rioni.client.values import encode, number

    if event_type:
        for warning in session.client.subscriptions.check_filter(expression, event_type):
            session.output.note(f"Warning: {as_sentence(warning)}")
    decode = msgspec.json.Decoder(float_hook=number).decode
    events = [decode(each) for each in json_events(file)]
    rows: list[tuple[Any, FilterEvaluation]] = []
    for start in range(0, len(events), EVENTS_AT_ONCE):
        some = events[start : start + EVENTS_AT_ONCE]
        rows += zip(some, session.client.subscriptions.try_filter(expression, some), strict=True)
    session.output.items(
        [
            {
                "matches": each.matches,
                **({"failure": each.failure} if each.failure else {}),
                "parts": [part.members() for part in each.parts],
                "event": event,
            }
            for event, each in rows
        ],
        {
            "matches": lambda row: "yes" if row["matches"] else "no",
            "because": lambda row: ", ".join(f"{_shown(part)}: {part['expression']}" for part in row["parts"]),
            "event": lambda row: encode(row["event"]).decode(),
        },
    )
    if not any(each.matches for _, each in rows):
        raise typer.Exit(FOUND)


def _shown(part: Mapping[str, object]) -> str:
    value, failure = part.get("value"), part.get("failure")
    return f"failed ({failure})" if failure else "no value" if value is None else str(value).lower()
