"""`python -m rioni.testing`: a broker for tests in any language, and the commands that they send it."""

import sys
from typing import Annotated, Any

import typer

from rioni.cli.terminal import streams
from rioni.cli.terminal.ending import run, when_asked_to_end
from rioni.testing import launcher, remote
from rioni.testing.broker import Broker
from rioni.testing.process import BrokerError


PORT = 8080

app = typer.Typer(name="rioni-testing", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

Port = Annotated[int, typer.Option(help="Port of the broker.")]
Count = Annotated[int, typer.Option(help="Number of requests.", min=1)]
Method = Annotated[str | None, typer.Option(help="Only requests with this verb.")]
PathOption = Annotated[str, typer.Option("--path", help="Only requests for a path like this one; * is any text.")]


def main() -> None:
    """Run the command that `sys.argv` names, and exit."""
    streams.prepare()
    run(app, "rioni-testing", failures=(BrokerError,))


@app.command()
def serve(
    *,
    port: Port = PORT,
    host: Annotated[str, typer.Option(help="Address to listen on; any but one of this machine is open to all.")] = (
        "127.0.0.1"
    ),
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of `rioni serve`; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
) -> None:
    """Run a broker for tests until Ctrl-C or SIGTERM; everything that it stores is gone then."""
    given = dict(_name_and_value(each) for each in settings or ())
    broker = Broker({"port": port, "host": host, "allow_unauthenticated": True, **given})
    when_asked_to_end(lambda *_: sys.exit(0))
    try:
        with broker:
            path = remote.socket_path(int(broker.url.rpartition(":")[2]))
            remote.serve(broker, path, lambda: typer.echo(f"A broker for tests serves {broker.url}", err=True))
    except KeyboardInterrupt:
        sys.exit(0)


@app.command()
def warm() -> None:
    """Let tests in Python begin their brokers in a tenth of a second, until Ctrl-C: it has loaded the server."""
    try:
        launcher.run_warm()
    except OSError as ex:
        raise BrokerError(f"The socket for tests can't be listened on: {ex.strerror or ex}.") from ex


@app.command()
def fail_next(
    status: Annotated[int, typer.Argument(help="HTTP status, 400 or above.")],
    *,
    count: Count = 1,
    method: Method = None,
    path: PathOption = "*",
    retry_after: Annotated[int | None, typer.Option(help="Value of the header Retry-After, in seconds.")] = None,
    port: Port = PORT,
) -> None:
    """Answer the next requests with an error; they are not processed."""
    _call(port, "fail_next", status=status, count=count, method=method, path=path, retry_after_s=retry_after)


@app.command()
def delay_next(
    seconds: Annotated[float, typer.Argument(help="By how much.", min=0)],
    *,
    count: Count = 1,
    method: Method = None,
    path: PathOption = "*",
    port: Port = PORT,
) -> None:
    """Process the next requests later."""
    _call(port, "delay_next", seconds=seconds, count=count, method=method, path=path)


@app.command()
def drop_next(
    *,
    count: Count = 1,
    method: Method = None,
    path: PathOption = "*",
    processed: Annotated[
        bool, typer.Option("--processed", help="Process them before, so that only the answer is lost.")
    ] = False,
    port: Port = PORT,
) -> None:
    """Close the connections of the next requests instead of answering them."""
    _call(port, "drop_next", count=count, method=method, path=path, processed=processed)


@app.command()
def drop_connections(*, port: Port = PORT) -> None:
    """Close all connections that are open, streams as well; print how many."""
    typer.echo(_call(port, "drop_connections"))


@app.command()
def clear_faults(*, port: Port = PORT) -> None:
    """Forget the faults that have not happened; print for how many requests they were."""
    typer.echo(_call(port, "clear_faults"))


@app.command()
def advance(
    *,
    days: Annotated[float, typer.Option(min=0)] = 0,
    hours: Annotated[float, typer.Option(min=0)] = 0,
    minutes: Annotated[float, typer.Option(min=0)] = 0,
    seconds: Annotated[float, typer.Option(min=0)] = 0,
    port: Port = PORT,
) -> None:
    """Move the time ahead, and do all that is due then; print the broker's time."""
    typer.echo(_call(port, "advance", days=days, hours=hours, minutes=minutes, seconds=seconds))


@app.command()
def reset(*, port: Port = PORT) -> None:
    """Delete everything created since the start or the last reset, set back the settings, and forget all faults."""
    _call(port, remote.RESET)


def _call(port: int, do: str, **arguments: object) -> Any:
    return remote.call(remote.socket_path(port), do, **arguments)


def _name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not name=value")
    return name, value


if __name__ == "__main__":
    main()
