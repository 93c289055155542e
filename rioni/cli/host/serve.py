"""Commands that run a broker, a demo or servers to try, show settings, and make tokens."""

import sys
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from rioni.cli.host.options import ConfigFile, Data, Port, load_settings
from rioni.cli.options import DAYS_MAX, Json
from rioni.cli.terminal.ending import when_asked_to_end
from rioni.cli.terminal.output import Output, say
from rioni.config.loading import load
from rioni.config.settings import SETTINGS
from rioni.domain.errors import Invalid
from rioni.domain.texts import proposal


# --- Commands that run a broker: serve and demo ---

app = typer.Typer()


@app.command(epilog="Example: rioni serve --port 8081 --data /srv/rioni --workers 4")
def serve(
    *,
    host: Annotated[str | None, typer.Option(help=SETTINGS["host"].description)] = None,
    port: Port = None,
    data: Data = None,
    workers: Annotated[int | None, typer.Option(help=SETTINGS["workers"].description)] = None,
    tls_certificate: Annotated[Path | None, typer.Option(help=SETTINGS["tls_certificate"].description)] = None,
    tls_key: Annotated[Path | None, typer.Option(help=SETTINGS["tls_key"].description)] = None,
    allow_unauthenticated: Annotated[
        bool, typer.Option("--allow-unauthenticated", help=SETTINGS["allow_unauthenticated"].description)
    ] = False,
    config_file: ConfigFile = None,
) -> None:
    """Run the broker until Ctrl-C or SIGTERM.

    On an address that other machines can reach it needs an [`auth_mode`](operating/security.md), or
    `--allow-unauthenticated`. With `--tls-certificate` and `--tls-key` it speaks [HTTPS](operating/security.md#tls). At
    shutdown, streams end with a last batch that says so. A second server on the same data directory refuses to start.
    All settings are in [the configuration](operating/configuration.md).
    """
    settings = load_settings(
        config_file,
        host=host,
        port=port,
        data=data,
        workers=workers,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        allow_unauthenticated=allow_unauthenticated or None,
    )
    from rioni.server.processes import serve as run

    run(settings)


@app.command(epilog="Example: rioni demo --flights 20000 --exit")
def demo(
    *,
    port: Port = None,
    data: Data = None,
    flights: Annotated[int | None, typer.Option(min=1, help="Publish only the first flights of the year.")] = None,
    exit_after: Annotated[bool, typer.Option("--exit", help="End after the report instead of serving on.")] = False,
    config_file: ConfigFile = None,
) -> None:
    """Publish, consume, audit and rebuild a year of real flights, checking every promise on the way.

    Starts the broker, publishes a year of real flights, consumes them through a subscription with commits, verifies
    completeness and order, archives the flights as a [Delta table](operating/archive.md) and counts them with SQL,
    shows the audit trail, rebuilds all read models with Spark, and leaves the broker serving. Needs `rioni[demo]` and
    Java.
    """
    settings = load_settings(config_file, data=data, port=port)
    from rioni.cli.host.demo import run

    run(settings, exit_after=exit_after, flights=flights)


# --- Commands about the settings ---

config_app = typer.Typer(name="config", no_args_is_help=True, help="Look at the settings.")


@config_app.command("show", epilog="Example: RIONI_PORT=8081 rioni config show")
def config_show(*, config_file: ConfigFile = None, json: Json = False) -> None:
    """Show every setting, its value, and where the value comes from."""
    loaded = load(file=config_file)
    shown = (
        {"setting": name, "value": setting.show(getattr(loaded.config, name)), "source": loaded.sources[name]}
        for name, setting in SETTINGS.items()
    )
    Output(json).items(shown, {"setting": "setting", "value": "value", "source": "source"})


# --- Commands for the file of tokens of a broker ---


tokens_app = typer.Typer(
    name="tokens", no_args_is_help=True, help="Tokens in the file that the setting `auth_tokens` names."
)

SCOPES = (
    "uid",
    "nakadi.event_type.write",
    "nakadi.config.write",
    "nakadi.event_stream.write",
    "nakadi.event_stream.read",
)


@tokens_app.command(
    epilog="Example: rioni tokens create --uid shop --scope nakadi.event_stream.write --days 90 --file tokens.toml"
)
def create(
    *,
    uid: Annotated[str, typer.Option(help="User of the token; in the realm `services` the name of a service.")],
    scope: Annotated[
        list[str], typer.Option(help="Scope in addition to `uid`; may be repeated. Only mode `full` requires more.")
    ] = [],  # noqa: B006 - never changed
    realm: Annotated[str, typer.Option(help="Realm in which the uid is unique.")] = "services",
    days: Annotated[
        int | None, typer.Option(help="Days until the token expires; by default it never does.", min=1, max=DAYS_MAX)
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="Add its entry to this file, made if missing; otherwise it is printed.")
    ] = None,
    json: Json = False,
) -> None:
    """Create a random token, and print it this once; the [file of tokens](operating/security.md#a-file) has its hash.

    With `--file` the token is all that is printed, and a running broker accepts it within a second. Without it the
    entry for the file is printed as well.
    """
    if unknown := set(scope) - set(SCOPES):
        name, listed = min(unknown), f"; there are {', '.join(SCOPES)}."
        raise Invalid(f"There is no scope {name}{proposal(name, SCOPES, listed)}")
    from rioni.operations.tokens import add_entry, new_token

    scopes = [each for each in SCOPES if each == "uid" or each in scope]
    expires = None if days is None else datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
    made = new_token(uid, scopes, realm, expires)
    if file is not None:
        add_entry(file, made.entry)
    shown: dict[str, Any] = {"token": made.token, "sha256": made.sha256, "uid": uid, "scopes": scopes, "realm": realm}
    shown |= {"expires": expires, "file": None if file is None else str(file), "entry": made.entry}
    Output(json).line(shown, made.token if file is not None else f"{made.token}\n\n{made.entry}".rstrip("\n"))


# --- The command that runs the servers that nodes of a cluster share ---


cluster_app = typer.Typer(
    name="cluster",
    no_args_is_help=True,
    help="Real Kafka, ZooKeeper and PostgreSQL on this machine, to try and to develop.",
)


@cluster_app.command("up", epilog="Example: rioni cluster up --brokers 3")
def cluster_up(
    *,
    brokers: Annotated[int, typer.Option(min=1, max=9, help="Brokers of Kafka; of three each topic has a copy.")] = 1,
    zookeepers: Annotated[int, typer.Option(min=1, max=5, help="Servers of ZooKeeper; of three one may die.")] = 1,
) -> None:
    """Start what several nodes share until Ctrl-C or SIGTERM, and print how they find it; nothing is kept.

    Starts Kafka, ZooKeeper and a PostgreSQL on this machine's loopback interface, and prints the environment that makes
    `rioni serve` [a node](operating/cluster.md) of this cluster. Needs `rioni[local-cluster]`, Java 17 or newer, and
    Maven, which fetches Kafka and ZooKeeper once.
    """
    from rioni.cli.cluster.cluster import running_cluster

    with running_cluster(
        brokers=brokers, zookeepers=zookeepers, progress=lambda text: say(f"# {text}", err=True)
    ) as running:
        when_asked_to_end(lambda *_: sys.exit(0))
        with suppress(KeyboardInterrupt):
            for variable, value in running.environment.items():
                say(f"export {variable}='{value}'")
            say("# Ctrl-C stops everything.", err=True)
            while True:
                time.sleep(1)
