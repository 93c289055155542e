"""Commands that measure a broker: any server of the API."""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.session import Session, connected
from rioni.cli.terminal.ending import FOUND
from rioni.cli.terminal.output import console_on, say


if TYPE_CHECKING:
    from rioni.cli.broker.load_report import Report


app = typer.Typer(name="bench", no_args_is_help=True, help="Measure a broker: any server of the API, at any base URL.")

EventType = Annotated[str | None, typer.Option(help="Made if missing. [default: rioni-bench.<category>]")]
Connections = Annotated[int, typer.Option(min=1, max=1_000, help="Connections, each with one request at a time.")]
Seconds = Annotated[float, typer.Option(min=0.1, max=3_600, help="How long to measure.")]


class Category(StrEnum):
    """Categories of event types."""

    BUSINESS = "business"
    DATA = "data"
    UNDEFINED = "undefined"


class ReadFrom(StrEnum):
    """The place at which a new subscription begins."""

    BEGIN = "begin"
    END = "end"


@app.command("publish", epilog="Example: rioni bench publish --connections 8 --batch 100 --size 200 --seconds 10")
@connected
def bench_publish(
    session: Session,
    *,
    event_type: EventType = None,
    category: Annotated[Category, typer.Option(help="Category of the event type.")] = Category.BUSINESS,
    connections: Connections = 8,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="Events in one request.")] = 100,
    size: Annotated[
        int, typer.Option(min=0, max=900_000, help="Bytes of one event, at least what metadata needs.")
    ] = 200,
    seconds: Seconds = 10,
    requests: Annotated[int | None, typer.Option(min=1, help="Stop after this many requests.")] = None,
    idempotency_keys: Annotated[
        bool, typer.Option("--idempotency-keys", help="Send an idempotency key with each request.")
    ] = False,
) -> None:
    """Publish valid events as fast as they are acknowledged; exit code 1 if some were not.

    Works with any server of the API. Measures for `--seconds`, or until `--requests` are done, and prints rates,
    latencies and a histogram; with `--json` one line for scripts.
    """
    from rioni.cli.broker import bench as load

    plan = load.Publish(
        **_server(session),
        event_type=event_type or f"rioni-bench.{category}",
        category=category.value,
        connections=connections,
        batch=batch,
        size=size,
        seconds=seconds,
        requests=requests,
        keys=idempotency_keys,
    )
    _report(load.publish(plan, session.client), json=session.output.json)


@app.command("consume", epilog="Example: rioni bench consume --connections 2 --read-from begin --events 1000000")
@connected
def bench_consume(
    session: Session,
    *,
    event_type: Annotated[
        str, typer.Option(help="An existing event type.", autocompletion=completions.event_types)
    ] = "rioni-bench.business",
    connections: Annotated[int, typer.Option(min=1, max=1_000, help="Streams of the subscription.")] = 1,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="Events in one batch at most.")] = 500,
    window: Annotated[int, typer.Option(min=1, help="Events of a stream that may be uncommitted.")] = 50_000,
    read_from: Annotated[ReadFrom, typer.Option(help="Start position of the new subscription.")] = ReadFrom.BEGIN,
    seconds: Seconds = 10,
    events: Annotated[int | None, typer.Option(min=1, help="Stop after this many events.")] = None,
) -> None:
    """Consume through a new subscription, committing all the time; exit code 1 if a request failed.

    The subscription is deleted at the end. The latencies are those of the commits.
    """
    from rioni.cli.broker import bench as load

    plan = load.Consume(
        **_server(session),
        event_type=event_type,
        connections=connections,
        batch=batch,
        window=window,
        read_from=read_from.value,
        seconds=seconds,
        events=events,
    )
    _report(load.consume(plan, session.client), json=session.output.json)


def _server(session: Session) -> dict[str, Any]:
    connection = session.connection
    return {"url": connection.url, "token": connection.bearer(), "ca_certificate": connection.ca_certificate}


def _report(report: "Report", *, json: bool) -> None:
    if json:
        say(report.json())
    else:
        report.show(console_on(sys.stdout))
    if report.failed:
        raise typer.Exit(FOUND)
