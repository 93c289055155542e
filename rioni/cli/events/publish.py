"""The commands that publish events from files and pipes, and single events of compacted event types."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from rioni.cli.connections.options import EventTypeName
from rioni.cli.connections.session import BrokerSession, connected
from rioni.cli.options import Yes
from rioni.cli.publishing.event_files import STDIN, Files, Uploading, lines_of_files, upload
from rioni.cli.terminal.output import confirm
from rioni.domain.errors import Invalid


if TYPE_CHECKING:
    from rioni.cli.publishing.publishing import Line


# --- The command that publishes events from files and pipes ---

app = typer.Typer()


@app.command(
    epilog="Example: rioni publish orders orders.jsonl\n\n"
    "Example: psql --csv -c 'SELECT * FROM orders' | rioni publish orders --format csv --continue "
    "--rejected rejected.jsonl\n\n"
    "Example: rioni publish orders orders.csv --dry-run",
)
@connected
def publish(
    session: BrokerSession,
    event_type: EventTypeName,
    files: Files = None,
    *,
    options: Uploading,
    once: Annotated[
        bool, typer.Option("--once", help="If repeated with the same input, store only the missing events.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the events; publish nothing.")] = False,
) -> None:
    """Publish events from files, or from standard input.

    The input is JSON, an object in each line or any number of objects one after the other or in an array, or CSV or
    TSV with a header, in UTF-8. `--format` or the ending of the file's name says which one; input without either has
    to be JSON. Headers with dots, such as `order.id`, are members of members; cells get the types of the event type's
    schema, or those of `--types`: [values of CSV](reference/values-csv.md) has every case.

    Events get the `eid` and `occurred_at` that they lack. Metadata that only a broker may set is removed, so that what
    [tail](cli/events.md#rioni-tail) shows can be published again. Events are stored in the order of the input, batch by
    batch; memory is bounded, whatever the length. From a pipe events are published half a second after they came, at
    the latest.

    Input that is no event is an error with its line, and exit code 2. Files are read completely before the first event
    is published, so nothing is published then; of a pipe, the batches before that line are. An event that the broker
    refuses is named by its line, with the broker's reason: events before it are stored, events after it are not, and
    the exit code is 1. `--continue` reports both, and publishes all other events.

    With `--once` the broker recognises batches that it stored before, by
    [idempotency keys](reference/publishing.md#idempotency-keys) made from the input: after an interruption, or a loss
    of the connection, run the same command again. Keep the same `--batch`, and do so within the time that the broker
    keeps keys, by default 24 hours. Servers that do not know such keys store batches again.

    A restart of the broker, or an outage of a minute, is no error: a batch is sent again under its key for two minutes.
    An event type that was deleted and created again meanwhile is an error, with exit code 2.

    `--dry-run` reads all of the input, and checks it against the schema and the partition strategy of the event type.
    """
    from rioni.cli.publishing.checking import CheckingPublisher
    from rioni.cli.publishing.publishing import BatchPublisher

    client = session.client
    found = client.event_types.get(event_type)
    options.check(session, found)
    sources = files or [STDIN]
    stop = not (options.go_on or dry_run)
    if dry_run:
        publisher = BatchPublisher(
            CheckingPublisher(found, len(client.partitions.list(event_type))).publish, stop=False
        )
    else:
        publisher = BatchPublisher(
            lambda events, batch_key: client.publish(event_type, events, idempotency_key=batch_key),
            repeats=once,
            stop=stop,
        )
        session.be_patient()
    done = "can be published" if dry_run else f"published to {event_type}"
    lines = lines_of_files(sources, options, found, stop=stop)
    upload(session, sources, lines, publisher, options, event_type=found, stop=stop, done=done, once=once)


# --- Commands for single events of an event type ---

events_app = typer.Typer(name="events", no_args_is_help=True, help="Events of compacted event types.")


@events_app.command(
    epilog="Example: rioni events delete customers C-17 C-18 --yes\n\n"
    "Example: rioni events delete customers --file gone.csv --key customer.id --yes",
)
@connected
def delete(
    session: BrokerSession,
    event_type: EventTypeName,
    keys: Annotated[list[str] | None, typer.Argument(help="Compaction keys whose events are deleted.")] = None,
    *,
    files: Annotated[
        list[str] | None, typer.Option("--file", help="File with events whose keys are deleted; `-` is standard input.")
    ] = None,
    options: Uploading,
    yes: Yes = False,
) -> None:
    """Delete events of a compacted event type by their keys.

    The broker stores a [deletion](reference/publishing.md#delete-events) for each key; compaction removes the events
    before it. Where the partition follows from members of the event (`hash`), deletions need these, too: give events
    with `--file`, in the formats of [publish](cli/events.md#rioni-publish). The exit code is 1 if some were refused.
    """
    from rioni.cli.publishing.publishing import BatchPublisher

    if bool(keys) == bool(files):
        raise Invalid("Name what to delete: either keys, or --file with events that have them.")
    client = session.client
    found = client.event_types.get(event_type)
    options.check(session, found)
    stop = not options.go_on
    lines = _of_keys(keys) if keys else lines_of_files(files or (), options, found, stop=stop)
    confirm(
        f"Delete the events of {event_type} with {f'{len(keys)} keys' if keys else 'the keys in the file'}?", yes=yes
    )
    session.be_patient()
    publisher = BatchPublisher(
        lambda events, batch_key: client.delete_events(event_type, events, idempotency_key=batch_key), stop=stop
    )
    done = f"of {event_type} deleted by their keys"
    upload(session, (), lines, publisher, options, event_type=found, stop=stop, done=done)


def _of_keys(keys: list[str]) -> Iterator["Line"]:
    import msgspec

    from rioni.cli.publishing.publishing import Line
    from rioni.cli.publishing.records import FileEvent

    for number, key in enumerate(keys, 1):
        yield Line("key", FileEvent(number, msgspec.json.encode({"metadata": {"partition_compaction_key": key}})))
