"""The command that copies events."""

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.connection import resolve
from rioni.cli.connections.session import BrokerSession, connected
from rioni.cli.events.event_options import Selected, check_filter_option
from rioni.cli.publishing.event_files import REASONS_MAX, BatchSize, Continue
from rioni.cli.terminal.ending import REFUSED
from rioni.cli.terminal.output import Meter, meter
from rioni.cli.terminal.streams import created
from rioni.domain.errors import Invalid, RioniError


if TYPE_CHECKING:
    from rioni.cli.events.copy_state import CopyState
    from rioni.cli.events.copying import Copy, RefusedEvent
    from rioni.cli.publishing.publishing import BatchOutcome
    from rioni.client import Client


app = typer.Typer()

BROKERS = "Brokers, if there are two"


@app.command(
    epilog="Example: rioni copy orders orders-copy --create\n\n"
    "Example: rioni copy orders orders --from-context prod --to-context test --create --state orders.copy\n\n"
    "Example: rioni copy orders large-orders --filter 'event.total > 1000' --follow --state large.copy",
)
@connected
def copy(
    session: BrokerSession,
    source: Annotated[str, typer.Argument(help="Event type to copy from.", autocompletion=completions.event_types)],
    target: Annotated[str, typer.Argument(help="Event type to copy to.", autocompletion=completions.event_types)],
    *,
    from_context: Annotated[
        str | None,
        typer.Option(
            help="Context of the source's broker.",
            metavar="NAME",
            autocompletion=completions.contexts,
            rich_help_panel=BROKERS,
        ),
    ] = None,
    to_context: Annotated[
        str | None,
        typer.Option(
            help="Context of the target's broker.",
            metavar="NAME",
            autocompletion=completions.contexts,
            rich_help_panel=BROKERS,
        ),
    ] = None,
    to_url: Annotated[
        str | None, typer.Option(help="Base URL of the target's broker.", metavar="URL", rich_help_panel=BROKERS)
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Make the target like the source, if there is none.")
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(help="File with the progress of the copy: the same command continues from there.", metavar="FILE"),
    ] = None,
    selected: Selected,
    follow: Annotated[bool, typer.Option("--follow", help="Continue with the events published from now on.")] = False,
    keep_metadata: Annotated[
        bool,
        typer.Option("--keep-metadata/--new-metadata", help="Whether `eid` and `occurred_at` stay as they are."),
    ] = True,
    batch: BatchSize = 500,
    go_on: Continue = False,
    rejected: Annotated[
        Path | None,
        typer.Option("--rejected", help="Write refused events there, with their place and the reason, as JSON lines."),
    ] = None,
) -> None:
    """Copy events from one event type to another one, of the same broker or of two.

    Copies the events that exist when the command begins, or with `--follow` also those published later. Events of
    a partition are published in their order. The target's partition strategy decides into which partitions they go, so
    that a target like the source keeps the order of each key. Metadata that the broker sets are set
    anew by the target's broker. Deletions are not copied, as streams do not deliver them. A `--filter` is
    [compared with the schema](reference/subscriptions.md#filter-check) of the source first.

    With `--state` an interrupted copy continues where it stopped, also after a crash: each batch is published under an
    [idempotency key](reference/publishing.md#idempotency-keys), so that a broker that knows such keys stores nothing
    twice, provided the command is run again within the time that it keeps them, by default 24 hours. Other servers may
    get the batches twice that were being published. Without a file the state is in memory.

    A restart of a broker, or an outage of a minute, is no error: reading and publishing are tried again for two
    minutes without progress.

    In the end the number of copied events is compared with the growth of the target. The exit code is 1 if events were
    refused, had expired before they could be read, or are missing from the target.
    """
    from rioni.cli.events.copy_state import state_file
    from rioni.cli.events.copying import Copy, Stopped, Transformation, check_identities, new_state, target_of
    from rioni.cli.publishing.publishing import BatchPublisher
    from rioni.client import ClientError
    from rioni.client.ranges import BATCH_EVENTS, RangeError, Reader
    from rioni.client.retries import Patience

    wanted, chosen = selected.wanted(), selected.selection()
    from_client, to_client = _clients(session, from_context, to_context, to_url)
    found = from_client.event_types.get(source)
    session.be_patient(from_client)
    if selected.event_filter is not None:
        check_filter_option(session.output.note, [found], selected.event_filter)
    to, is_new = target_of(to_client, target, from_client, found, chosen, create=create)
    session.be_patient(to_client)
    if is_new:
        session.output.note(f"The event type {target} is made.")
    options = {"filter": selected.event_filter or "", "metadata": "kept" if keep_metadata else "new"}
    stop = not go_on
    with ExitStack() as stack:
        kept = stack.enter_context(state_file(state, new_state(found, to, to_client, options)))
        report = _Report(session, stack, rejected, kept.state)
        ending = threading.Event()
        work = Copy(
            reader=Reader(
                from_client,
                source,
                note=report.note,
                batch_events=min(batch, BATCH_EVENTS),
                patience=lambda: Patience(ending.wait, report.note, from_client.retry_s),
            ),
            wanted=wanted,
            transform=Transformation(kept.state.id, to, keep_metadata),
            publisher=BatchPublisher(
                lambda events, key: to_client.publish(target, events, idempotency_key=key),
                repeats=True,
                stop=stop,
            ),
            state=kept,
            batch=batch,
            stop=stop,
            refused=report.refused,
            ending=ending,
        )
        work.progress = lambda: report.progress(work)
        work.check = lambda: check_identities(kept.state, from_client, to_client)
        work.give_up = session.close
        try:
            work.run(chosen, follow=follow)
        except Stopped:
            report.note("The copy has stopped at that event; --continue goes on without it.")
        except (ClientError, RioniError, KeyboardInterrupt, SystemExit) as ex:
            report.broken_off(kept.state, state, goes_on=not isinstance(ex, Invalid | RangeError))
            raise
        is_complete = report.end(work, to_client)
    if not is_complete:
        raise typer.Exit(REFUSED)


def _clients(
    session: BrokerSession, from_context: str | None, to_context: str | None, to_url: str | None
) -> "tuple[Client, Client]":
    """Return the clients of the brokers of source and target."""
    if to_context is not None and to_url is not None:
        raise Invalid("Name the broker of the target once: --to-context or --to-url.")
    timeout_s = session.connection.timeout_s
    source = target = session.client
    if from_context is not None:
        source = session.client_of(resolve(context=from_context, timeout_s=timeout_s))
    if to_context is not None:
        target = session.client_of(resolve(context=to_context, timeout_s=timeout_s))
    elif to_url is not None:
        authority = session.connection.ca_certificate
        target = session.client_of(resolve(url=to_url, ca_certificate=authority, timeout_s=timeout_s))
    return source, target


class _Report:
    """Reports refused events, how far the copy is, and whether it is complete; several threads may do so at once."""

    def __init__(self, session: BrokerSession, stack: ExitStack, rejected: Path | None, state: "CopyState") -> None:
        self._output = session.output
        self._stored_before = _stored(state)
        self._meter: Meter = stack.enter_context(meter())
        self._lock = threading.Lock()
        self._said = 0
        self._file = None
        if rejected is not None:
            self._file = stack.enter_context(created(rejected))

    def note(self, text: str) -> None:
        """Say something to people."""
        self._meter.clear()
        self._output.note(text)

    def refused(self, refused: "RefusedEvent") -> None:
        """Take note of an event that was not copied."""
        import msgspec

        with self._lock:
            self._said += 1
            if self._said <= REASONS_MAX:
                self.note(f"partition {refused.partition}, {refused.offset}: {refused.step}: {refused.reason}")
            if self._file is not None:
                value = {**refused._asdict(), "event": msgspec.Raw(refused.event)}
                self._file.write(msgspec.json.encode(value).decode() + "\n")

    def progress(self, work: "Copy") -> None:
        """Show how far it is, on a terminal."""
        read = sum(each.read for each in work.state.state.partitions.values())
        self._meter.show(lambda: f"{read:,} of {work.total:,} events, {self._meter.rate(read)}")

    def broken_off(self, state: "CopyState", path: Path | None, *, goes_on: bool) -> None:
        """Report what is done, and how to go on, unless the reason is that it can't."""
        stored = _stored(state)
        earlier = f", {stored:,} with those of earlier runs" if self._stored_before else ""
        advice = f"the same command goes on, with --state {path}" if path else "with --state a copy can be continued"
        how = f"; {advice}" if goes_on else ""
        self.note(f"Not complete: {stored - self._stored_before:,} events are copied{earlier}{how}.")

    def end(self, work: "Copy", client: "Client") -> bool:
        """Report what was done; return whether everything is copied."""
        from rioni.cli.events.copying import growth

        state = work.state.state
        partitions = state.partitions.values()
        read, refused = (sum(getattr(each, name) for each in partitions) for name in ("read", "refused"))
        # If a batch ended with a refused event, the earlier events are copied.
        copied, last = (sum(counts) for counts in zip((0, 0), *map(_counts, work.stopped.values()), strict=True))
        stored, refused, read = _stored(state) + copied, refused + last, read + copied + last
        grown = growth(client, state)
        value: dict[str, Any] = {
            "source": state.source.event_type,
            "target": state.target.event_type,
            "read": read,
            "copied": stored,
            "copied_before": self._stored_before,
            "filtered": read - stored - refused,
            "refused": refused,
            "expired": state.lost,
            "target_growth": grown,
        }
        self._meter.clear()
        words = [f"{stored - self._stored_before:,} events copied to {state.target.event_type}"]
        if self._stored_before:
            words = [f"{words[0]}; by all runs: {stored:,} copied"]
        words += [f"{count:,} {what}" for what, count in value.items() if what in _SAID and count]
        self._output.line(value, f"{', '.join(words)}; {_grown(grown, stored)}.")
        return not (self._said or refused or state.lost or (grown is not None and grown < stored))


_SAID = ("filtered", "refused", "expired")


def _counts(outcome: "BatchOutcome") -> tuple[int, int]:
    return outcome.stored, len(outcome.refused)


def _stored(state: "CopyState") -> int:
    """The number of events that all runs with a state have copied."""
    return sum(each.stored for each in state.partitions.values())


def _grown(grown: int | None, stored: int) -> str:
    if grown is None:
        return "how much the target has grown is no longer known"
    if grown < stored:
        return f"but the target has grown by {grown:,} only: events are missing, or were deleted with their timeline"
    others = f", of which {grown - stored:,} are of other producers" if grown > stored else ""
    return f"the target has grown by {grown:,}{others}"
