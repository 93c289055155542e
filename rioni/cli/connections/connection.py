"""Which broker a command speaks to: options, environment, contexts, in this order."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rioni.cli.connections.contexts import Context, checked_token, checked_url, read_contexts
from rioni.config import variables


DEFAULT_URL = "http://localhost:8080"
DEFAULT_ORIGIN = "default"
"""Where the URL comes from if nothing names a broker."""
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Connection:
    """A broker, and what is shown to it.

    Args:
        url: base URL of the API.
        token: returns the token, and may block; None where none is shown.
        ca_certificate: file with the authorities to trust; None for those of the system.
        timeout_s: of a request.
        origin: where the URL comes from, for people.
        token_origin: where the token comes from, for people; None without one.
    """

    url: str
    token: Callable[[], str | None] | None
    ca_certificate: Path | None
    timeout_s: float
    origin: str
    token_origin: str | None = None

    def bearer(self) -> str | None:
        """The token now, if any; blocks and raises as `Context.token`."""
        return None if self.token is None else self.token()


def resolve(
    *,
    url: str | None = None,
    context: str | None = None,
    token: str | None = None,
    ca_certificate: Path | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Connection:
    """Decide which broker is meant by options, environment and contexts; raises Invalid.

    A token of a context goes to no other broker than that of the context: with a URL of another source no context is
    used, unless the option names one beside it.

    Args:
        url: option, None if not given; as are the following.
        context: name of a context.
        token: of the user.
        ca_certificate: file with the authorities to trust.
        timeout_s: of a request.
    """
    environ_url = os.environ.get(variables.URL) or None
    environ_token = os.environ.get(variables.TOKEN) or None
    name = context
    if name is None and url is None and environ_url is None:
        name = os.environ.get(variables.CONTEXT) or read_contexts().current
    chosen = None if name is None else read_contexts().get(name)
    candidates = [(url, "--url"), (chosen and chosen.url, f"context {name}"), (environ_url, variables.URL)]
    found, origin = next(((each, origin) for each, origin in candidates if each), (DEFAULT_URL, DEFAULT_ORIGIN))
    authority = ca_certificate or (Path(chosen.ca_certificate) if chosen and chosen.ca_certificate else None)
    source, token_origin = _token(token, environ_token, chosen, name, named=context is not None)
    return Connection(checked_url(found), source, authority, timeout_s, origin, token_origin)


def _token(
    option: str | None, environ: str | None, context: Context | None, name: str | None, *, named: bool
) -> tuple[Callable[[], str | None] | None, str | None]:
    """Choose the source of the token, and name it; a context that an option names is stronger than the environment."""
    if option is not None:
        return (lambda: checked_token(option, "--token")), "--token"
    if context and (context.token_command or context.token_env) and (named or environ is None):
        kind = "token_command" if context.token_command else f"variable {context.token_env}"
        return context.token, f"the {kind} of the context {name}"
    if environ is None:
        return None, None
    return (lambda: checked_token(environ, f"The variable {variables.TOKEN}")), f"the variable {variables.TOKEN}"
