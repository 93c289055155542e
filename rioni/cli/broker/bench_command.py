"""Commands that measure a broker: any server of the API."""

import sys
from typing import TYPE_CHECKING

import typer

from rioni.cli.broker.bench_runs import Consume, Publish, Report
from rioni.cli.connections.session import BrokerSession, connected
from rioni.cli.terminal.ending import FOUND
from rioni.cli.terminal.output import console_on, say


if TYPE_CHECKING:
    from rioni.cli.broker.load_client import LoadTarget


app = typer.Typer(name="bench", no_args_is_help=True, help="Measure a broker: any server of the API, at any base URL.")


@app.command("publish", epilog="Example: rioni bench publish --connections 8 --batch 100 --size 200 --seconds 10")
@connected
def bench_publish(session: BrokerSession, *, plan: Publish) -> None:
    """Publish valid events as fast as they are acknowledged; exit code 1 if some were not.

    Works with any server of the API. Measures for `--seconds`, or until `--requests` are done, and prints rates,
    latencies and a histogram; with `--json` one line for scripts.
    """
    from rioni.cli.broker.bench import publish

    _report(publish(_server(session), plan, session.client), json=session.output.json)


@app.command("consume", epilog="Example: rioni bench consume --connections 2 --read-from begin --events 1000000")
@connected
def bench_consume(session: BrokerSession, *, plan: Consume) -> None:
    """Consume through a new subscription, committing all the time; exit code 1 if a request failed.

    The subscription is deleted at the end. The latencies are those of the commits.
    """
    from rioni.cli.broker.bench import consume

    _report(consume(_server(session), plan, session.client), json=session.output.json)


def _server(session: BrokerSession) -> "LoadTarget":
    from rioni.cli.broker.load_client import LoadTarget

    connection = session.connection
    return LoadTarget(connection.url, connection.bearer(), connection.ca_certificate)


def _report(report: Report, *, json: bool) -> None:
    if json:
        say(report.json())
    else:
        report.show(console_on(sys.stdout))
    if report.failed:
        raise typer.Exit(FOUND)
