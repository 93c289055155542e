"""The command that consumes a subscription."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rioni.cli import templates
from rioni.cli.exit_codes import INTERRUPTED
from rioni.cli.remote.event_options import Limit, Template
from rioni.cli.remote.options import SubscriptionId
from rioni.cli.session import Session, connected
from rioni.cli.tables import printable


if TYPE_CHECKING:
    from rioni.client.consumption.events import Event


app = typer.Typer(name="subscriptions")

BATCH_MAX = 500
WINDOW_MAX = 10_000


@app.command(
    epilog="Example: rioni subscriptions consume 038fc871-1d2c-4e2e-aa29-1579e8f2e71f >> orders.jsonl\n\n"
    "Example: rioni subscriptions consume 038fc871-1d2c-4e2e-aa29-1579e8f2e71f --no-commit --limit 10"
)
@connected
def consume(
    session: Session,
    subscription: SubscriptionId,
    *,
    limit: Limit = None,
    seconds: Annotated[
        float | None, typer.Option("--for", help="End after this time.", min=0.1, metavar="SECONDS")
    ] = None,
    commit: Annotated[
        bool, typer.Option("--commit/--no-commit", help="Whether the events that are written are committed.")
    ] = True,
    partition: Annotated[
        list[str],
        typer.Option(
            help="Read only this partition, `[EVENT_TYPE:]PARTITION`, which no other stream may have; may be repeated.",
            metavar="PARTITION",
        ),
    ] = [],  # noqa: B006 - never changed
    template: Template = None,
) -> None:
    """Consume a subscription: write its events, and commit them once they are written.

    Shares the partitions with the other consumers of the subscription, reconnects, and goes on until Ctrl-C, SIGTERM,
    `--limit` or `--for`; then what was written is committed. An event is written at least once: after a failure those
    come again whose commit is unknown.

    Each event is a line with its JSON, or one by `--template`. `--json` writes a line `{"cursor": {"event_type",
    "partition", "offset"}, "event": …}`, with the cursor of the batch that the event came in, which
    `rioni subscriptions commit` takes.

    With `--no-commit` the events come again, here or elsewhere. A subscription with [dead
    letters](concepts/dead-letters.md) counts that as a failure.
    """
    write = _writer(session, template)
    consumer = session.client.subscription(
        subscription,
        batch_limit=min(limit or BATCH_MAX, BATCH_MAX),
        max_uncommitted_events=min(limit or WINDOW_MAX, WINDOW_MAX),
        commit="batch" if commit else "manual",
        partitions=_partitions(session, subscription, partition),
    )
    left = limit
    with _ended_by_signals(consumer.stop, seconds), consumer:
        for event in consumer:
            write(event)
            left = None if left is None else left - 1
            if left == 0:
                break


def _partitions(session: Session, subscription: str, texts: list[str]) -> list[tuple[str, str]]:
    """Event types and numbers of partitions; raises BadParameter."""
    names = session.client.subscriptions.get(subscription).event_types if texts else []
    found = []
    for text in texts:
        event_type, _, number = text.rpartition(":")
        if not event_type and len(names) == 1:
            event_type = names[0]
        if event_type not in names or not number:
            raise typer.BadParameter(
                f"{text} is no partition of {', '.join(names)}; write EVENT_TYPE:PARTITION", param_hint="--partition"
            )
        found.append((event_type, number))
    return found


def _writer(session: Session, text: str | None) -> Callable[["Event[Any]"], None]:
    import msgspec

    if session.output.json and text is not None:
        raise typer.BadParameter("choose one of --json and --template", param_hint="--template")
    fill = None if text is None else templates.template(text)

    def write(event: "Event[Any]") -> None:
        cursor = event.cursor.members()
        cursor.pop("cursor_token", None)
        if session.output.json:
            line = msgspec.json.encode({"cursor": cursor, "event": msgspec.Raw(event.raw)}).decode()
        elif fill is not None:
            line = fill({**event.data, "cursor": cursor})
        else:
            line = event.raw.decode(errors="replace")
            line = printable(line) if sys.stdout.isatty() else line
        sys.stdout.write(f"{line}\n")
        # What is committed has to be written.
        sys.stdout.flush()

    return write


@contextmanager
def _ended_by_signals(stop: Callable[[], None], seconds: float | None) -> Iterator[None]:
    """Stop in order at Ctrl-C, SIGTERM and after a time; after Ctrl-C the command ends with its exit code."""
    numbers: list[int] = []

    def end(number: int, _: object) -> None:
        numbers.append(number)
        stop()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_REAL, seconds or 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
    if signal.SIGINT in numbers:
        raise typer.Exit(INTERRUPTED)
