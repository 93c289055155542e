"""The session of a command over HTTP: the options of the connection, the client, and the output."""

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.connection import DEFAULT_URL, TIMEOUT_S, BrokerConnection, resolve
from rioni.cli.connections.options import subscription_id
from rioni.cli.options import PANEL, SECONDS_MAX, Json, grouped, parameters_of
from rioni.cli.terminal.output import Output, as_sentence, clear_line
from rioni.config import variables
from rioni.domain.errors import RioniError
from rioni.domain.texts import nearest


if TYPE_CHECKING:
    from rioni.client import Client


# --- Advice after an error of the client: the end of the line that reports it ---

Given = tuple[Callable[["Client"], Iterable[str]], str]
"""A name that the user gave, after the function that asks a broker for all names of this kind."""


NAMES_S = 5.0
"""Longest time of the requests for names, which the error waits for."""


def advice(ex: Exception, connection: BrokerConnection, given: Sequence[Given] = ()) -> str:
    """Return advice on an error, after a space; empty if there is none.

    Args:
        ex: the error.
        connection: of the command; the broker is asked for its names if it does not know one.
        given: names of things of the broker that the user gave.
    """
    from rioni.client import BadRequest, ConnectionFailed, Forbidden, NotFound, Unauthorized, Unprocessable

    found = ""
    if isinstance(ex, BadRequest | NotFound | Unprocessable):
        # The broker's error may already ask such a question.
        found = "" if str(ex).endswith("?") else proposals(given, connection)
    elif isinstance(ex, Unauthorized) and connection.token_origin is None:
        found = f"The broker wants a token: set {variables.TOKEN}, or add a context with --token-command."
    elif isinstance(ex, Unauthorized):
        found = f"The token comes from {connection.token_origin}: that is where a new one belongs."
    elif isinstance(ex, Forbidden):
        found = "`rioni settings rights` shows what the broker lets you do."
    elif "CERTIFICATE_VERIFY_FAILED" in str(ex):
        found = "If its certificate is of an authority of your own, name that one: --ca-certificate FILE."
    elif isinstance(ex, ConnectionFailed) and not ex.sent:
        found = "Is the broker running there? `rioni context show` says where the URL comes from."
    return f" {found}" if found else ""


def proposals(given: Sequence[Given], connection: BrokerConnection) -> str:
    """A question about the first name that the broker does not know, if it is like one that it knows.

    Nothing if the broker does not list all names in time: the nearest one may be among the others.
    """
    from rioni.client import ClientError

    if not given:
        return ""
    ends_s = monotonic() + NAMES_S
    try:
        with connection.client(attempts=1, timeout_s=NAMES_S) as client:
            for names_of, name in given:
                names = []
                for each in names_of(client):
                    if monotonic() > ends_s:
                        return ""
                    names.append(each)
                if name not in names and (found := nearest(name, names)):
                    return f"Did you mean {found}?"
    except ClientError:
        pass
    return ""


class Refused(RioniError):
    """The broker did not do what a command asked for, or could not be reached."""


ATTEMPTS = 5
"""The most attempts of a request, within some two seconds: people wait for the answer, and decide on more."""


class BrokerSession:
    """The broker that a command speaks to, and its output.

    Args:
        connection: to the broker.
        output: of the command.
        given: names of things of the broker that the user gave.
    """

    def __init__(self, connection: BrokerConnection, output: Output, given: Sequence[Given] = ()) -> None:
        self.connection = connection
        self.output = output
        self._given = given
        self._stack = ExitStack()
        self._notes = _Notes(output)

    @cached_property
    def client(self) -> "Client":
        """The client of the broker; made when it is first used."""
        return self.client_of(self.connection)

    def client_of(self, wanted: BrokerConnection, *, sleep: Callable[[float], object] | None = None) -> "Client":
        """A client of another broker, or with its own pauses between attempts; it is closed with the command."""
        return self._stack.enter_context(wanted.client(attempts=ATTEMPTS, sleep=sleep))

    def reach(self) -> None:
        """Ask the broker whether it is there, before outages of it are ridden out: a wrong URL is an error at once.

        Raises:
            ClientError: there is no answer, or that of a broker that is away.
        """
        from rioni.client import Problem
        from rioni.client.retries import may_help

        try:
            self.client.request("GET", "/version")
        except Problem as ex:
            # Other refusals have nothing to do with the version, which other servers of this API may lack.
            if may_help(ex, again=True):
                raise

    def be_patient(self, *clients: "Client") -> None:
        """Ride out outages of a minute from now on, since the broker has answered; messages report them to people.

        Args:
            clients: of this session; by default that of its broker.
        """
        for client in clients or (self.client,):
            client.attempts = None
        logger = logging.getLogger("rioni.client")
        logger.addHandler(self._notes)
        self._stack.callback(logger.removeHandler, self._notes)

    def close(self) -> None:
        """Close the clients: requests of other threads end."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, ex: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, ex, trace)
        if self.output.nothing_found and ex is None and (question := proposals(self._given, self.connection)):
            self.output.note(question)
        # If the module is not loaded, there was no client.
        if "rioni.client" in sys.modules:
            from rioni.client import ClientError

            if isinstance(ex, ClientError):
                refused = Refused(f"{as_sentence(str(ex))}{advice(ex, self.connection, self._given)}")
                for note in getattr(ex, "__notes__", ()):
                    refused.add_note(note)
                raise refused from ex


class _Notes(logging.Handler):
    """Shows people the messages that are logged."""

    def __init__(self, output: Output) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        """Say it."""
        clear_line()
        self._output.note(f"{record.getMessage()}.")


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
    float,
    typer.Option(help="Longest time of a request.", min=0.1, max=SECONDS_MAX, metavar="SECONDS", rich_help_panel=PANEL),
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
    """Give a command the options of the connection; its first parameter is the `BrokerSession`, others may be groups.

    Errors of the client end the command with one line and exit code 2.
    """
    own = list(parameters_of(command))[1:]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _OPTIONS.items()
    ]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        given = {name: values.pop(name) for name in _OPTIONS}
        output = Output(json=given.pop("json"))
        connection = resolve(timeout_s=given.pop("timeout"), **given)
        with BrokerSession(connection, output, _given(own, values)) as session:
            _replace_names(session, values)
            command(session, **grouped(command, values))

    signature = inspect.Signature([*own, *added])
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    return run


def _given(parameters: Sequence[inspect.Parameter], values: Mapping[str, Any]) -> list[Given]:
    """The names among the values: those that shells complete."""
    found: list[Given] = []
    for each in parameters:
        infos = getattr(each.annotation, "__metadata__", ())
        names_of = next((known for info in infos if (known := completions.NAMES.get(info.autocompletion))), None)
        value = values.get(each.name)
        if names_of is not None and value is not None:
            found += [(names_of, name) for name in ([value] if isinstance(value, str) else value)]
    return found


def _replace_names(session: BrokerSession, values: dict[str, Any]) -> None:
    """Replace names of subscriptions by ids, in whatever argument or option of a command."""
    for parameter in ("subscription", "subscriptions"):
        given = values.get(parameter)
        if isinstance(given, str):
            values[parameter] = subscription_id(session.client, given, as_of=values.get("as_of"))
        elif given:
            values[parameter] = [subscription_id(session.client, each) for each in given]
