"""Commands for dead letters."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.options import SubscriptionId
from rioni.cli.connections.session import Session, connected


if TYPE_CHECKING:
    from rioni.client import Cursor, Redriven


app = typer.Typer(
    name="dead-letters", no_args_is_help=True, help="Events that the consumers of a subscription never commit."
)

FromEventType = Annotated[
    str | None,
    typer.Option("--event-type", help="Only events of this event type.", autocompletion=completions.event_types),
]
FromPartition = Annotated[str | None, typer.Option("--partition", help="Only events of this partition.")]
FromOffset = Annotated[str | None, typer.Option(help="Only events from this offset on.")]
ToOffset = Annotated[str | None, typer.Option(help="Only events up to this offset.")]
Reason = Annotated[str | None, typer.Option(help="Only events with exactly this error, as the list shows it.")]
LIMIT_MAX = 1_000
Limit = Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="How many at most.")]


@app.command("list", epilog="Example: rioni dead-letters list 038fc871-1d2c-4e2e-aa29-1579e8f2e71f")
@connected
def list_dead_letters(
    session: Session,
    subscription: SubscriptionId,
    *,
    event_type: FromEventType = None,
    partition: FromPartition = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    reason: Reason = None,
    limit: Limit = 20,
    show_redriven: Annotated[
        bool, typer.Option("--show-redriven", help="Include those that were published again before, and mark them.")
    ] = False,
) -> None:
    """Show [dead letters](concepts/dead-letters.md) of a subscription that were not published again, oldest first."""
    found = session.client.subscriptions.dead_letters(
        subscription,
        event_type=event_type,
        partition=partition,
        from_offset=from_offset,
        to_offset=to_offset,
        reason=reason,
        limit=limit + 1,
        show_redriven=show_redriven,
        only_open=not show_redriven,
    )
    marks = {"redriven": "redriven"} if show_redriven else {}
    session.output.first(
        found,
        limit,
        {
            "event type": "event_type",
            "partition": "partition",
            "offset": "offset",
            "kept": "kept_at",
            "error": lambda letter: letter["error"].get("reason") or letter["error"].get("message"),
            **marks,
            "event": "event",
        },
        f"`--limit` shows up to {LIMIT_MAX:,}, `--partition` and `--from-offset` others.",
    )


@app.command(epilog="Example: rioni dead-letters redrive 038fc871-1d2c-4e2e-aa29-1579e8f2e71f --partition 0")
@connected
def redrive(
    session: Session,
    subscription: SubscriptionId,
    *,
    event_type: FromEventType = None,
    partition: FromPartition = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    reason: Reason = None,
    limit: Limit = 1_000,
    force: Annotated[bool, typer.Option("--force", help="Also those that were published again before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them, by error too.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Go on until all are published, with a line for each `--limit` of them.")
    ] = False,
) -> None:
    """Publish dead letters again, for their subscription alone.

    A restart of the broker, or an outage of a minute, is no error once the broker has answered. With `--force` it is
    one if some may have been published: check before you repeat it, as that publishes them once more.
    """
    chosen: dict[str, Any] = {
        "event_type": event_type,
        "partition": partition,
        "from_offset": from_offset,
        "to_offset": to_offset,
        "reason": reason,
        "limit": limit,
        "force": force,
    }
    session.reach()
    session.be_patient()
    step = _preview if dry_run else _redrive
    after = step(session, subscription, chosen)
    while everything and after is not None:
        after = step(session, subscription, chosen | {"after": after})


def _preview(session: Session, subscription: str, chosen: Mapping[str, Any]) -> "Cursor | None":
    """Show the effect of a redrive; return the cursor at which the next one continues."""
    found = session.client.subscriptions.preview_redrive(subscription, **chosen)
    more = [f"There are more than these {found.redriven}."] if found.more else []
    session.output.nothing_found = found.redriven + found.already_redriven == 0
    reasons = [f"  {each.count}: {each.reason}" for each in found.reasons]
    session.output.line(found, "\n".join([f"A redrive now: {_counts(found)}", *more, *reasons]))
    return found.after


def _redrive(session: Session, subscription: str, chosen: Mapping[str, Any]) -> "Cursor | None":
    """Redrive; return the cursor at which the next one continues."""
    done = session.client.subscriptions.redrive(subscription, **chosen)
    session.output.line(done, _counts(done))
    session.output.nothing_found = done.redriven + done.already_redriven == 0
    return done.after


def _counts(done: "Redriven") -> str:
    return (
        f"{done.redriven} redriven, {done.already_redriven} already redriven, "
        f"{done.without_event_type} without an event type"
    )
