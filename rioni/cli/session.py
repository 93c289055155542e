"""What a command over HTTP works with: the options of the connection, the client, and the output."""

import functools
import inspect
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from rioni.cli import completions
from rioni.cli.connection import DEFAULT_URL, TIMEOUT_S, Connection, resolve
from rioni.cli.options import PANEL, Json
from rioni.cli.output import Output
from rioni.config import variables
from rioni.domain.errors import RioniError


if TYPE_CHECKING:
    from rioni.client import Client


class Refused(RioniError):
    """The broker did not do what a command asked for, or could not be reached."""


class Session:
    """The broker that a command speaks to, and its output.

    Args:
        connection: to the broker.
        output: of the command.
    """

    def __init__(self, connection: Connection, output: Output) -> None:
        self.connection = connection
        self.output = output
        self._stack = ExitStack()

    @cached_property
    def client(self) -> "Client":
        """The client of the broker; made when it is first used."""
        from rioni.client import Client

        ca_certificate = self.connection.ca_certificate
        return self._stack.enter_context(
            Client(
                self.connection.url,
                token=self.connection.token,
                ca_certificate=ca_certificate,
                timeout_s=self.connection.timeout_s,
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, ex: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, ex, trace)
        # Without the module there was no client.
        if "rioni.client" in sys.modules:
            from rioni.client import ClientError

            if isinstance(ex, ClientError):
                raise Refused(str(ex)) from ex


Url = Annotated[
    str | None,
    typer.Option(
        help=f"Base URL of the API; otherwise {variables.URL}, the context in use, or {DEFAULT_URL}.",
        metavar="URL",
        rich_help_panel=PANEL,
    ),
]
ContextName = Annotated[
    str | None,
    typer.Option(
        help=f"Use this context; otherwise {variables.CONTEXT}, or the one in use.",
        metavar="NAME",
        autocompletion=completions.contexts,
        rich_help_panel=PANEL,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        help=f"Bearer token, where the broker asks for one; {variables.TOKEN} does not show it to other users.",
        metavar="TOKEN",
        rich_help_panel=PANEL,
    ),
]
CaCertificate = Annotated[
    Path | None,
    typer.Option(
        help="PEM file with the authorities to trust, for https; by default those of the system.",
        metavar="FILE",
        rich_help_panel=PANEL,
    ),
]
Timeout = Annotated[
    float, typer.Option(help="Longest time of a request.", min=0.1, metavar="SECONDS", rich_help_panel=PANEL)
]

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "url": (Url, None),
    "context": (ContextName, None),
    "token": (Token, None),
    "ca_certificate": (CaCertificate, None),
    "timeout": (Timeout, TIMEOUT_S),
    "json": (Json, False),
}


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of the connection; its first parameter is the `Session`.

    Errors of the client end the command with one line and exit code 2.
    """
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _OPTIONS.items()
    ]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        given = {name: values.pop(name) for name in _OPTIONS}
        output = Output(json=given.pop("json"))
        connection = resolve(timeout_s=given.pop("timeout"), **given)
        with Session(connection, output) as session:
            command(session, **values)

    signature = inspect.Signature([*own, *added])
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    return run
