"""Commands for single events of an event type."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from rioni.cli.connections.options import EventTypeName
from rioni.cli.connections.session import Session, connected
from rioni.cli.events.event_options import check_placing
from rioni.cli.options import Yes
from rioni.cli.publishing.event_files import (
    BatchSize,
    Continue,
    Format,
    Key,
    RejectedFile,
    ToPartition,
    Types,
    lines_of_files,
    upload,
)
from rioni.cli.terminal.output import confirm
from rioni.domain.errors import Invalid


if TYPE_CHECKING:
    from rioni.cli.publishing.uploading import Line


app = typer.Typer(name="events", no_args_is_help=True, help="Events of compacted event types.")


@app.command(
    epilog="Example: rioni events delete customers C-17 C-18 --yes\n\n"
    "Example: rioni events delete customers --file gone.csv --key customer.id --yes",
)
@connected
def delete(
    session: Session,
    event_type: EventTypeName,
    keys: Annotated[list[str] | None, typer.Argument(help="Compaction keys whose events are deleted.")] = None,
    *,
    files: Annotated[
        list[str] | None, typer.Option("--file", help="File with events whose keys are deleted; `-` is standard input.")
    ] = None,
    file_format: Format = None,
    types: Types = "",
    key: Key = None,
    partition: ToPartition = None,
    batch: BatchSize = 500,
    go_on: Continue = False,
    rejected: RejectedFile = None,
    yes: Yes = False,
) -> None:
    """Delete events of a compacted event type by their keys.

    The broker stores a [deletion](reference/publishing.md#delete-events) for each key; compaction removes the events
    before it. Where the partition follows from members of the event (`hash`), deletions need these, too: give events
    with `--file`, in the formats of [publish](cli/events.md#rioni-publish). The exit code is 1 if some were refused.
    """
    from rioni.cli.publishing.metadata import Completion
    from rioni.cli.publishing.publishing import BatchPublisher

    if bool(keys) == bool(files):
        raise Invalid("Say what to delete: either keys, or --file with events that have them.")
    client = session.client
    found = client.event_types.get(event_type)
    check_placing(session, found, key, partition)
    lines = _of_keys(keys) if keys else lines_of_files(files or (), file_format, types, found, stop=not go_on)
    confirm(
        f"Delete the events of {event_type} with {f'{len(keys)} keys' if keys else 'the keys in the file'}?", yes=yes
    )
    session.be_patient()
    upload(
        session,
        (),
        lines,
        BatchPublisher(
            lambda events, batch_key: client.delete_events(event_type, events, idempotency_key=batch_key),
            stop=not go_on,
        ),
        event_type=found,
        complete=Completion(event_type, key=key, partition=partition).complete,
        batch=batch,
        once=False,
        stop=not go_on,
        rejected=rejected,
        done=f"of {event_type} deleted by their keys",
    )


def _of_keys(keys: list[str]) -> Iterator["Line"]:
    import msgspec

    from rioni.cli.publishing.records import Record
    from rioni.cli.publishing.uploading import Line

    for number, key in enumerate(keys, 1):
        yield Line("key", Record(number, msgspec.json.encode({"metadata": {"partition_compaction_key": key}})))
