"""The command that counts event types."""

from typing import Annotated

import typer

from rioni.cli.connections.options import AsOf, Category, CleanupPolicy, UnusedDays
from rioni.cli.connections.session import Session, connected


app = typer.Typer(name="event-types", no_args_is_help=True, help="Event types: what events may be published.")

FACETS = ("owning_application", "category", "cleanup_policy", "label")


@app.command(
    epilog="Example: rioni event-types facets\n\n"
    "Example: rioni event-types facets --owning-application shop --unused-days 60"
)
@connected
def facets(
    session: Session,
    *,
    name: Annotated[str | None, typer.Option(help="Only these names; `*` matches any text.")] = None,
    owning_application: Annotated[str | None, typer.Option(help="Only those of this application.")] = None,
    category: Category = None,
    cleanup_policy: CleanupPolicy = None,
    label: Annotated[
        list[str], typer.Option(help="Only those with this label; may be repeated.", metavar="KEY[:VALUE]")
    ] = [],  # noqa: B006 - never changed
    unused_days: UnusedDays = None,
    limit: Annotated[int | None, typer.Option(help="How many values of each member are shown.", min=1)] = None,
    as_of: AsOf = None,
) -> None:
    """Count [event types](reference/event-types.md#facets) by owner, category, clean-up policy and label.

    Event types count as unused if nobody has published to them or read them for 30 days, or `--unused-days`.
    """
    found = session.client.event_types.facets(
        name=name,
        owning_application=owning_application,
        category=category,
        cleanup_policy=cleanup_policy,
        labels=label,
        unused_days=unused_days,
        limit=limit,
        as_of=as_of,
    )
    rows = [
        {"member": member, "value": each.value, "count": each.count}
        for member in FACETS
        for each in getattr(found, member).values
    ]
    if found.unused is not None:
        rows.append({"member": "unused", "value": f"for {found.unused.days} days", "count": found.unused.count})
    rows.append({"member": "total", "value": "", "count": found.total})
    session.output.items(rows, {"member": "member", "value": "value", "count": "count"})
    for member in FACETS:
        facet = getattr(found, member)
        session.output.note_left_out(len(facet.values), facet.distinct, f"values of {member}")
