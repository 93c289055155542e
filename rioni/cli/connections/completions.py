"""Names that shells complete: of event types, subscriptions, contexts and others.

Without an answer within a second, or with any error, none are offered: a shell has no place for messages. A shell
writes names into the command line as they are, where `$(…)` would run: a broker offers only names that need no quotes.
"""

import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from rioni.cli.connections.connection import read_contexts, resolve


if TYPE_CHECKING:
    from rioni.client import Client


DEADLINE_S = 1.0
NAMES_MAX = 1_000
PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+-]*")
"""Names that mean nothing else to any shell, which are all that a broker of the API accepts."""


class _TooLateError(BaseException):
    """The deadline has passed; not an Exception, so that no client of a library tries again."""


NAMES: dict[Callable[..., list[str]], Callable[["Client"], Iterable[str]]] = {}
"""The requests for the names that each function completes; errors about unknown names make the same requests."""


def _completing(names: Callable[["Client"], Iterable[str]]) -> Callable[[typer.Context], list[str]]:
    """A function that completes the names which a broker returns."""

    def complete(ctx: typer.Context) -> list[str]:
        def ask() -> list[str]:
            given = {name: ctx.params.get(name) for name in ("url", "context", "token", "ca_certificate")}
            with resolve(**given, timeout_s=DEADLINE_S).client(attempts=1) as client:
                return [name for name, _ in zip(names(client), range(NAMES_MAX), strict=False)]

        return _in_time(ask)

    NAMES[complete] = names
    return complete


event_types = _completing(lambda client: (each.name for each in client.event_types.list()))
storages = _completing(lambda client: (each.id for each in client.storages.list()))
features = _completing(lambda client: (each.feature for each in client.settings.features()))
subscriptions = _completing(
    lambda client: (
        name
        for each in client.subscriptions.list()
        for name in (each.id, f"{each.owning_application}/{each.consumer_group}")
    )
)
"""Ids of subscriptions, and their names."""
resources = _completing(
    lambda client: (
        f"{kind}:{getattr(each, key)}"
        for kind, listed, key in (
            ("event-type", client.event_types.list, "name"),
            ("subscription", client.subscriptions.list, "id"),
            ("storage", client.storages.list, "id"),
        )
        for each in listed()
    )
)
"""Resources as audit entries name them: a kind and a key."""


def contexts() -> list[str]:
    """Names of contexts."""
    return _in_time(lambda: read_contexts().contexts)


def _in_time(ask: Callable[[], Iterable[str]]) -> list[str]:
    def stop(*_: object) -> None:
        raise _TooLateError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)
    try:
        with _silent_stderr():
            return [name for name in ask() if PLAIN.fullmatch(name)]
    except (Exception, _TooLateError):  # noqa: BLE001 - as the module says
        return []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Keep messages of this process and of token commands from the prompt."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
