"""Commands about contexts: brokers by name."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.connection import (
    NO_SECRETS,
    Context,
    changed_contexts,
    contexts_file,
    read_contexts,
    resolve,
)
from rioni.cli.options import Json
from rioni.cli.terminal.output import Output
from rioni.config import variables
from rioni.domain.errors import Invalid


app = typer.Typer(
    name="context",
    no_args_is_help=True,
    help="Brokers by name, for all commands over HTTP.",
)

Name = Annotated[str, typer.Argument(help="Name of the context.")]
Known = Annotated[str, typer.Argument(help="Name of the context.", autocompletion=completions.contexts)]


@app.command(
    epilog="Example: rioni context add prod --url https://broker.example.org "
    "--token-command 'vault read -field=token secret/broker'"
)
def add(
    name: Name,
    *,
    url: Annotated[str, typer.Option(help="Base URL of the API.", metavar="URL")],
    token_command: Annotated[
        str | None,
        typer.Option(help="A command that prints the token; run without a shell.", metavar="COMMAND"),
    ] = None,
    token_env: Annotated[
        str | None, typer.Option(help="Name of a variable that holds the token.", metavar="VARIABLE")
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="Refused: secrets are not kept in files.", metavar="TOKEN", hidden=True)
    ] = None,
    ca_certificate: Annotated[
        Path | None, typer.Option(help="PEM file with the authorities to trust.", metavar="FILE")
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Use it from now on; the first one is used anyway.")] = False,
    json: Json = False,
) -> None:
    """Add a context, or replace the one of this name.

    The file of contexts holds no secrets, only where a token comes from. The words of `--token-command` are split as in
    a shell, but run without one; write `sh -c '...'` where it takes a pipe. It has 30 seconds, and its output is the
    token. It is run for each command, and once again when the broker answers 401, so it should keep what it fetches.
    """
    if token is not None:
        raise Invalid(f"--token: {NO_SECRETS}.")
    authority = None if ca_certificate is None else str(ca_certificate.absolute())
    context = Context(url, token_command, token_env, authority)
    with changed_contexts() as contexts:
        contexts.contexts[name] = context
        if use or contexts.current is None:
            contexts.current = name
        current = contexts.current == name
    _done(name, context, f"is in {contexts_file()}{', and in use' if current else ''}", json=json, current=current)


@app.command("list", epilog="Example: rioni context list")
def list_contexts(*, json: Json = False) -> None:
    """Show all contexts; the one in use is marked."""
    contexts = read_contexts()
    items = [
        _item(name, context, current=name == contexts.current) for name, context in sorted(contexts.contexts.items())
    ]
    Output(json).items(
        items,
        {
            "": lambda item: "*" if item["current"] else "",
            "name": "name",
            "url": "url",
            "token": lambda item: item["token_command"] or (item["token_env"] and f"${item['token_env']}"),
            "authorities": "ca_certificate",
        },
    )


@app.command(epilog="Example: rioni context show")
def show(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of the context; by default what commands would use.", autocompletion=completions.contexts
        ),
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Show which broker commands use now, and why: the context in use, or the variables of the environment.

    Nothing is fetched, and no token is shown.
    """
    connection = resolve(context=name)
    has_token = connection.token is not None
    shown = {"url": connection.url, "from": connection.origin, "token": "yes" if has_token else "no"}
    authority = connection.ca_certificate
    Output(json).item(shown | {"ca_certificate": None if authority is None else str(authority)})


@app.command(epilog="Example: rioni context use prod")
def use(name: Known, *, json: Json = False) -> None:
    """Use a context from now on, in all shells; `RIONI_CONTEXT` or `--context` do so for one shell or command."""
    with changed_contexts() as contexts:
        context = contexts.get(name)
        contexts.current = name
    overridden = [name for name in (variables.URL, variables.CONTEXT) if os.environ.get(name)]
    stronger = f", but {' and '.join(overridden)} of this shell is stronger" if overridden else ""
    _done(name, context, f"is in use{stronger}", json=json, current=True)


@app.command(epilog="Example: rioni context remove prod")
def remove(name: Known, *, json: Json = False) -> None:
    """Remove a context."""
    with changed_contexts() as contexts:
        context = contexts.get(name)
        del contexts.contexts[name]
        if contexts.current == name:
            contexts.current = None
    _done(name, context, "is removed", json=json, current=False)


def _item(name: str, context: Context, *, current: bool) -> dict[str, object]:
    return {"name": name, **asdict(context), "current": current}


def _done(name: str, context: Context, what: str, *, json: bool, current: bool) -> None:
    Output(json).line(_item(name, context, current=current), f"{name} ({context.url}) {what}.")
