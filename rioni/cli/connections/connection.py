"""The broker that a command speaks to, from options, the environment, and the file of contexts, in this order.

The file is `$XDG_CONFIG_HOME/rioni/contexts.toml`, or the file that `RIONI_CONTEXTS` names:

```toml
current = "prod"

[contexts.prod]
url = "https://broker.example.org"
token_command = "vault read -field=token secret/broker"
```
"""

import json
import os
import shlex
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rioni.config import variables
from rioni.domain.errors import Invalid, Unavailable
from rioni.domain.texts import proposal
from rioni.files.plain import edited, parse_toml, read_with_mode


if TYPE_CHECKING:
    from rioni.client import Client


# --- The file of contexts: brokers by name, and the sources of their tokens; it never holds a secret ---

TOKEN_COMMAND_TIMEOUT_S = 30
"""Seconds for a command: some ask a server; a person who has to type something does so before."""
SECRETS = ("token", "password", "secret")
NO_SECRETS = (
    "a secret is never kept in the file of contexts, which is copied and shown: name a command that prints the token "
    "(--token-command), or a variable that holds it (--token-env)"
)


@dataclass(frozen=True)
class SavedContext:
    """A broker, and the credentials that this client sends it.

    Args:
        url: base URL of the API.
        token_command: its output is the token; words as in a shell, but run without one.
        token_env: the name of a variable with the token.
        ca_certificate: the path of a PEM file with the authorities to trust.
    """

    url: str
    token_command: str | None = None
    token_env: str | None = None
    ca_certificate: str | None = None

    def __post_init__(self) -> None:
        """Check the values; raises Invalid."""
        checked_url(self.url)
        if self.token_command is not None and self.token_env is not None:
            raise Invalid("A context has a token_command or a token_env, not both.")
        if self.token_command is not None:
            _words(self.token_command)

    def token(self) -> str | None:
        """The token now; blocks while the command runs.

        Raises:
            Invalid: there is no such command or variable, or its output is no token.
            Unavailable: the command failed, or did not end in time.
        """
        if self.token_env is not None:
            return checked_token(os.environ.get(self.token_env, ""), f"The variable {self.token_env}")
        return None if self.token_command is None else _output_of(self.token_command)


@dataclass
class Contexts:
    """All contexts by name, and which one is in use."""

    current: str | None = None
    contexts: dict[str, SavedContext] = field(default_factory=dict)

    def get(self, name: str) -> SavedContext:
        """The context of a name; raises Invalid if there is none."""
        if name not in self.contexts:
            known = "; there are: " + (", ".join(sorted(self.contexts)) or "none") + "."
            raise Invalid(
                f"There is no context {name}{proposal(name, self.contexts, known)} `rioni context add` makes one."
            )
        return self.contexts[name]


def contexts_file() -> Path:
    """The path of the file, which may not exist."""
    if named := os.environ.get(variables.CONTEXTS):
        return Path(named)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "rioni" / "contexts.toml"


def read_contexts() -> Contexts:
    """Read the file; without one there are no contexts. Raises Invalid, with the problem and its place."""
    path = contexts_file()
    try:
        content, mode = read_with_mode(path)
        loaded = parse_toml(content)
    except FileNotFoundError:
        return Contexts()
    except OSError as ex:
        raise Invalid(f"The file of contexts {path} can't be read: {ex.strerror}.") from ex
    except ValueError as ex:  # not TOML, or not UTF-8
        raise Invalid(f"The file of contexts {path} is not TOML: {ex}.") from ex
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Invalid(f"Others may write to {path}, which names commands that are run: chmod 600 {path}")
    try:
        return _parsed(loaded)
    except Invalid as ex:
        raise Invalid(f"The file of contexts {path} is wrong: {ex}") from ex


@contextmanager
def changed_contexts() -> Iterator[Contexts]:
    """The contexts, to be changed: the file is replaced in one step when the block ends.

    Raises:
        Invalid: the file can't be read, or can't be written.
        Unavailable: another command is changing it.
    """
    path = contexts_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with edited(path) as file:
            contexts = read_contexts()
            yield contexts
            file.text = _as_toml(contexts)
    except BlockingIOError as ex:
        raise Unavailable(f"Another command is changing {path}; try again.") from ex
    except OSError as ex:
        raise Invalid(f"The file of contexts {path} can't be written: {ex.strerror}.") from ex
    except UnicodeDecodeError as ex:
        raise Invalid(f"The file of contexts {path} is not TOML: {ex}.") from ex


def checked_url(url: str) -> str:
    """A base URL; raises Invalid."""
    try:
        parts = urlsplit(url)
        right = parts.scheme in {"http", "https"} and parts.hostname and not parts.query and not parts.fragment
        _ = parts.port
    except ValueError as ex:
        raise Invalid(f"{url} is not a URL: {ex}.") from ex
    if parts.username is not None or parts.password is not None:
        raise Invalid(f"The URL of {parts.hostname} has a user or password in it: {NO_SECRETS}.")
    if not right:
        raise Invalid(f"{url} is not a base URL such as http://localhost:8080 or https://broker.example.org.")
    return url


def checked_token(text: str, source: str) -> str:
    """A token, without the line break at its end; raises Invalid, and never shows it."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise Invalid(f"{source} holds no token: one word of printable characters is expected.")
    return token


def _parsed(loaded: Mapping[str, object]) -> Contexts:
    if unknown := loaded.keys() - {"current", "contexts"}:
        raise Invalid(f"{min(unknown)} is unknown; there are `current` and tables `contexts.NAME`.")
    current, tables = loaded.get("current"), loaded.get("contexts", {})
    if not isinstance(current, str | None) or not isinstance(tables, dict):
        raise Invalid("`current` is a name, and `contexts` has a table for each name.")
    contexts = Contexts(current, {name: _context(name, table) for name, table in tables.items()})
    if current is not None:
        contexts.get(current)
    return contexts


def _context(name: str, table: object) -> SavedContext:
    if not isinstance(table, dict):
        raise Invalid(f"{name} is not a table.")
    known = [each.name for each in fields(SavedContext)]
    for key, value in table.items():
        if key in SECRETS:
            raise Invalid(f"{name} has a `{key}`: {NO_SECRETS}.")
        if key not in known or not isinstance(value, str):
            raise Invalid(f"{name} has `{key}`; there are {', '.join(known)}, all of them texts.")
    if "url" not in table:
        raise Invalid(f"{name} has no url.")
    try:
        return SavedContext(**table)
    except Invalid as ex:
        raise Invalid(f"{name}: {ex}") from ex


def _as_toml(contexts: Contexts) -> str:
    # NOTE: a JSON string is a basic string of TOML.
    lines = [] if contexts.current is None else [f"current = {_quoted(contexts.current)}"]
    for name, context in sorted(contexts.contexts.items()):
        lines += ["", f"[contexts.{_quoted(name)}]"]
        lines += [f"{key} = {_quoted(value)}" for key, value in asdict(context).items() if value is not None]
    return "\n".join(lines).lstrip() + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as ex:
        raise Invalid(f"The token command `{command}` can't be split into words: {ex}.") from ex
    if not words:
        raise Invalid("The token command is empty.")
    return words


def _output_of(command: str) -> str:
    try:
        # Its errors and questions go to the terminal; standard input may hold the input of our own command.
        done = subprocess.run(
            _words(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=TOKEN_COMMAND_TIMEOUT_S,
            check=True,
        )
        text = done.stdout.decode()
    except subprocess.TimeoutExpired as ex:
        raise Unavailable(f"The token command `{command}` did not end within {TOKEN_COMMAND_TIMEOUT_S} s.") from ex
    except subprocess.CalledProcessError as ex:
        raise Unavailable(f"The token command `{command}` failed with exit code {ex.returncode}.") from ex
    except OSError as ex:
        raise Invalid(f"The token command `{command}` can't be run: {ex.strerror}.") from ex
    except UnicodeDecodeError as ex:
        raise Invalid(f"The output of the token command `{command}` is not a token.") from ex
    return checked_token(text, f"The output of the token command `{command}`")


# --- The choice of a broker: options, environment, contexts, in this order ---

DEFAULT_URL = "http://localhost:8080"
DEFAULT_ORIGIN = "default"
"""The origin of the URL if nothing names a broker."""
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class BrokerConnection:
    """A broker, and how to connect to it.

    Args:
        url: base URL of the API.
        token: returns the token, and may block; None if none is sent.
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

    def client(
        self, *, attempts: int, timeout_s: float | None = None, sleep: Callable[[float], object] | None = None
    ) -> "Client":
        """A client of the broker, to be closed; raises Invalid if something of this makes no sense.

        Args:
            attempts: the most attempts of a request.
            timeout_s: of a request, instead of that of the connection.
            sleep: waits between two attempts, and may raise to end them.
        """
        from rioni.client import Client

        try:
            return Client(
                self.url,
                token=self.token,
                ca_certificate=self.ca_certificate,
                timeout_s=timeout_s or self.timeout_s,
                attempts=attempts,
                sleep=sleep,
            )
        except ValueError as ex:
            raise Invalid(f"{ex}.") from ex

    def bearer(self) -> str | None:
        """The token now, if any; blocks and raises as `SavedContext.token`."""
        return None if self.token is None else self.token()


def resolve(
    *,
    url: str | None = None,
    context: str | None = None,
    token: str | None = None,
    ca_certificate: Path | None = None,
    timeout_s: float = TIMEOUT_S,
) -> BrokerConnection:
    """Decide which broker is meant by options, environment and contexts; raises Invalid.

    A token of a context goes to no other broker than that of the context: with a URL of another source no context is
    used, unless the option names one, too.

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
    return BrokerConnection(checked_url(found), source, authority, timeout_s, origin, token_origin)


def _token(
    option: str | None, environ: str | None, context: SavedContext | None, name: str | None, *, named: bool
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
