"""Wires the console: the pages for browsers in front of the API, in the same process."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import structlog

from rioni.config.logs import FailureLog
from rioni.config.settings import Config
from rioni.console.app import create_console
from rioni.console.login import Provider, ProviderBusy
from rioni.console.security import CLIENT as CLIENT_VARIABLE
from rioni.console.sessions import EndedSessions, Sessions
from rioni.domain.access.addresses import address_key
from rioni.domain.access.authorization import Mode
from rioni.domain.errors import Overloaded, Unavailable
from rioni.domain.ports.host import CLIENT
from rioni.http.answer_budget import PageBudget
from rioni.http.dependencies import Dependencies
from rioni.http.middleware.base_path import BasePathMiddleware
from rioni.http.middleware.cross_site import HostMiddleware
from rioni.installation.infrastructure import Infrastructure, shared_secret
from rioni.installation.turns import Gate
from rioni.server.services import StoredEndedSessions


LOGINS_MAX, LOGINS_QUEUE, LOGIN_WAIT_S = 4, 64, 15.0
"""The limits of logins that wait for the provider: concurrent ones, queued ones, seconds in the queue. Anybody may
begin one."""

_failures = FailureLog(structlog.get_logger("rioni.console"))
_NO_LOGIN = "the provider of logins does not work"


def with_console(api: Any, dependencies: Dependencies, base: Infrastructure) -> Any:
    """Return a WSGI application of the API and, below `/console`, its pages. Blocks on the disk."""
    config = dependencies.config
    secret = shared_secret(config, base.directory)
    console = create_console(
        api,
        Sessions(lambda: secret),
        EndedSessions(StoredEndedSessions(base.log.engine, base.pools.database)),
        needs_token=config.auth_mode != Mode.OFF,
        provider=_provider(config),
        guards=[*([BasePathMiddleware()] if config.trusted_proxies else ()), HostMiddleware(config)],
        middleware=[PageBudget(dependencies.answers)],
        compute=dependencies.compute_pool,
    )
    return _by_address(console)


def _provider(config: Config) -> Provider | None:
    if not config.console_oidc_issuer:
        return None
    return Provider(
        config.console_oidc_issuer,
        config.console_oidc_client_id,
        config.console_oidc_client_secret,
        config.console_oidc_scope,
        config.console_oidc_token,
        partial(_login_turn, Gate(LOGINS_MAX, LOGINS_QUEUE, "The login")),
        _note_login,
    )


def _note_login(failure: str) -> None:
    if failure:
        _failures.failed(_NO_LOGIN, Unavailable(failure))
    else:
        _failures.succeeded(_NO_LOGIN)


@contextlib.contextmanager
def _login_turn(gate: Gate, client: str) -> Iterator[None]:
    try:
        gate.enter(client, LOGIN_WAIT_S)
    except Overloaded as ex:
        raise ProviderBusy(str(ex)) from ex
    try:
        yield
    finally:
        gate.leave(client)


def _by_address(app: Any) -> Any:
    """An application whose work in pools counts for the address of a browser, until the API knows the user."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        # The connection's last request may have been another client's.
        environ[CLIENT_VARIABLE] = client = address_key(environ.get("REMOTE_ADDR"))
        CLIENT.set(client)
        return app(environ, start_response)

    return application
