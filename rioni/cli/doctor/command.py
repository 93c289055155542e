"""`rioni doctor`: checks everything that an operator would check."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rioni.cli.connections.session import BrokerSession, connected
from rioni.cli.terminal.ending import FOUND
from rioni.domain.access.addresses import host_and_port
from rioni.domain.errors import Invalid, RioniError


if TYPE_CHECKING:
    from rioni.cli.doctor.diagnosis import Host, Scope, Site
    from rioni.cli.doctor.shown import Shown


app = typer.Typer()


@app.command(
    epilog="Example: rioni doctor --context prod\n\n"
    "Example: rioni doctor --data /srv/rioni --log /var/log/rioni.log --bundle doctor.tar.gz"
)
@connected
def doctor(
    session: BrokerSession,
    *,
    data: Annotated[
        Path | None, typer.Option(help="Data directory of the broker on this host; checks the host, too.")
    ] = None,
    config_file: Annotated[
        Path | None, typer.Option("--config", help="TOML file with the settings of the broker.", metavar="FILE")
    ] = None,
    log: Annotated[
        list[Path], typer.Option(help="A file with the log of the broker; may be repeated.", metavar="FILE")
    ] = [],  # noqa: B006 - never changed
    constraints: Annotated[
        Path | None, typer.Option(help="A file with the versions that packages should have.", metavar="FILE")
    ] = None,
    fsync: Annotated[bool, typer.Option("--fsync", help="Measure how fast the disk is: 20 writes of 4 KiB.")] = False,
    only: Annotated[list[str], typer.Option(help="Only this check or group; may be repeated.", metavar="CHECK")] = [],  # noqa: B006 - as above
    skip: Annotated[
        list[str], typer.Option(help="Without this check or group; may be repeated.", metavar="CHECK")
    ] = [],  # noqa: B006 - as above
    interval: Annotated[
        float,
        typer.Option(help="Interval between two samples of values that change.", min=0.01, max=60, metavar="SECONDS"),
    ] = 3.0,
    deadline: Annotated[
        float, typer.Option(help="Deadline for the facts that checks need.", min=1, max=600, metavar="SECONDS")
    ] = 25.0,
    bundle: Annotated[
        Path | None, typer.Option(help="Pack what was found into this file: known facts only.", metavar="FILE")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings, too.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show all checks.")] = False,
    list_checks: Annotated[bool, typer.Option("--list", help="List the checks, then exit.")] = False,
) -> None:
    """Check everything that can be wrong with a broker, and advise what to do; exit code 1 on errors.

    It changes nothing, and sends few requests to the broker. On its host (`--data`, `--config`) it also checks
    settings, disk, processes and limits, even if the broker does not run. [All checks](operating/doctor.md).
    """
    import msgspec

    from rioni.cli.doctor import report
    from rioni.cli.doctor.diagnosis import Scope, chosen, gather, needed, run
    from rioni.cli.doctor.shown import Shown

    checks = chosen(only, skip)
    if list_checks:
        session.output.items(map(report.described, checks), report.COLUMNS)
        return
    if bundle is not None and bundle.exists():
        raise Invalid(f"{bundle} exists already; name a new file for the bundle.")
    scope = Scope(tuple(log), constraints, interval, deadline, fsync)
    with ExitStack() as stack:
        site = _site(session, data, config_file, scope, stack)
        facts = gather(site, needed(checks))
    shown = Shown([site.url, *map(str, filter(None, (site.host and site.host.data, config_file, constraints)))])
    facts = shown.facts(facts)
    results = run(checks, facts)
    if session.output.json:
        session.output.items(map(msgspec.to_builtins, results), {})
    else:
        report.write(results, _subject(session, site, shown), verbose=verbose)
    if bundle is not None:
        names = report.write_bundle(bundle, results, facts)
        session.output.note(f"{bundle} has {len(names)} files; look through them before you send it to others.")
    if any(each.status == "error" or (strict and each.status == "warning") for each in results):
        raise typer.Exit(FOUND)


def _site(
    session: BrokerSession, data: Path | None, config_file: Path | None, scope: "Scope", stack: ExitStack
) -> "Site":
    """Return the site to examine; its client is closed with the stack."""
    from rioni.cli.doctor.diagnosis import REQUEST_S, Deadline, Site
    from rioni.cli.doctor.processes import locate
    from rioni.client import Client
    from rioni.config import logs as logging_setup
    from rioni.config.settings import Config

    # Former names of settings are warned of.
    logging_setup.configure(Config())
    host, connection = locate(data, config_file), session.connection
    token, token_error = None, ""
    try:
        token = connection.bearer()
    except RioniError as ex:
        token_error = str(ex)
    url = url_of(host) if host is not None and connection.origin == "default" else connection.url
    timeout_s = min(REQUEST_S, connection.timeout_s)
    try:
        client = stack.enter_context(
            Client(url, token=lambda: token, ca_certificate=connection.ca_certificate, timeout_s=timeout_s, attempts=1)
        )
    except ValueError as ex:
        raise Invalid(f"{ex}.") from ex
    return Site(url, client, scope, Deadline(scope.deadline_s), token, token_error, connection.ca_certificate, host)


def url_of(host: "Host") -> str:
    """Return the URL at which the broker of this host listens, by its settings."""
    from rioni.cli.connections.connection import DEFAULT_URL

    config = host.config
    if config is None or not config.port:
        return DEFAULT_URL
    name = "localhost" if config.local_only or config.host in {"0.0.0.0", "::"} else config.host  # noqa: S104
    return f"{'https' if config.tls_certificate else 'http'}://{host_and_port(name, config.port)}"


def _subject(session: BrokerSession, site: "Site", shown: "Shown") -> str:
    from rioni.cli.doctor.shown import ORIGIN, PATH, URL

    host, beside = site.host, ""
    if host is not None:
        data, settings = shown.value(str(host.data), PATH), shown.value(host.origin or "nothing", ORIGIN)
        beside = f"; on its host: data {data}, settings of {settings}"
    origin = session.connection.origin if site.url == session.connection.url else "settings"
    return f"Broker {shown.value(site.url, URL)} ({origin}){beside}"
