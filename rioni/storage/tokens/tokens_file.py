"""The file of tokens, by their SHA-256: how it is read, and how new tokens and their entries are made."""

import hashlib
import json
import secrets
import threading  # threads: a lock that is only tried
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import structlog
from msgspec import Meta

from rioni.config.logs import FailureLog
from rioni.domain.access.authorization import TokenInfo, is_realm, is_uid
from rioni.domain.errors import Invalid, TokensUnavailable, Unavailable
from rioni.domain.ports.host import Clock, ThreadPool, direct
from rioni.files.plain import edited, parse_toml, read_file


# --- Reads tokens listed in a file, by their SHA-256: for small installations and for tests ---

LOOK_EVERY_S = 1.0
"""Interval of checking the file: a removed token is rejected from then on."""

_failures = FailureLog(structlog.get_logger("rioni.tokens"))

_NOT_READ = "tokens can't be read"


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    uid: str
    scopes: frozenset[str] = frozenset({"uid"})
    realm: str = "services"
    expires: datetime | None = None

    def info(self) -> TokenInfo:
        expires_at_ms = None if self.expires is None else int(self.expires.timestamp() * 1000)
        return TokenInfo(uid=self.uid, scopes=self.scopes, realm=self.realm, expires_at_ms=expires_at_ms)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    token: tuple[_Entry, ...] = ()


_Content = tuple[tuple[int, ...], Mapping[bytes, TokenInfo]]
"""Identifies a version of the file, with its tokens."""


class TokensFile:
    """Reads a file of `[[token]]` tables, again after changes; if it can't be read, all tokens are rejected."""

    def __init__(self, path: Path, clock: Clock, pool: ThreadPool = direct) -> None:
        """Read the file.

        Args:
            path: the path of the file.
            clock: determines when to check the file again.
            pool: the pool that waits for the disk.

        Raises:
            TokensUnavailable: the file can't be read; the text gives its path and the error.
        """
        self._path = path
        self._clock, self._pool = clock, pool
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] = ()
        self._reload_at_s = 0.0
        self._tokens: Mapping[bytes, TokenInfo] = {}
        self._problem: TokensUnavailable | None = None
        self._reload()
        if self._problem is not None:
            raise self._problem

    def inspect(self, token: str) -> TokenInfo | None:
        """See the port. Occasionally reads a small local file."""
        if self._clock.monotonic() >= self._reload_at_s:
            self._reload()
        if self._problem is not None:
            raise TokensUnavailable("Tokens can't be checked at present") from self._problem
        return None if self.is_over(token) else self._tokens.get(hashlib.sha256(token.encode()).digest())

    def is_over(self, token: str) -> bool:
        """See the port."""
        info = self._tokens.get(hashlib.sha256(token.encode()).digest())
        return info is not None and info.expires_at_ms is not None and self._clock.now_ms() >= info.expires_at_ms

    def _reload(self) -> None:
        # While the disk is slow, others use the known tokens until the read or its deadline ends.
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._reload_at_s = self._clock.monotonic() + LOOK_EVERY_S
            found = self._pool(_read_if_changed, self._path, None if self._problem else self._seen)
            if found is not None:
                self._seen, self._tokens = found
            self._problem = None
            _failures.succeeded(_NOT_READ)
        except (OSError, ValueError, Unavailable) as ex:  # also errors of TOML, UTF-8 and validation
            reason = ex.strerror if isinstance(ex, OSError) else str(ex)
            self._problem = TokensUnavailable(f"The file of tokens {self._path} can't be used: {reason}")
            _failures.failed(_NOT_READ, self._problem)
        finally:
            self._lock.release()


def _read_if_changed(path: Path, seen: tuple[int, ...] | None) -> _Content | None:
    """Return the identity of the file's content and its tokens; None if the content is unchanged."""
    status = path.stat()
    now = (status.st_mtime_ns, status.st_size, status.st_ino)
    return None if now == seen else (now, _read(path))


def _read(path: Path) -> Mapping[bytes, TokenInfo]:
    return parsed(read_file(path))


def parsed(content: bytes) -> Mapping[bytes, TokenInfo]:
    """The tokens of the content of a file, by their SHA-256; raises ValueError with the reason if it is invalid."""
    entries = msgspec.convert(parse_toml(content), _File).token
    for number, entry in enumerate(entries, 1):
        if not is_uid(entry.uid):
            raise ValueError(f"the uid of token {number} is empty, too long, or not printable")
        if not is_realm(entry.realm):
            raise ValueError(f"the realm of token {number} is too long, or not printable")
        if entry.expires is not None and entry.expires.tzinfo is None:
            raise ValueError(f"the end of token {number} has no offset; write 2027-01-01T00:00:00Z")
    return {bytes.fromhex(entry.sha256): entry.info() for entry in entries}


# --- Makes random tokens, and their entries in a file of tokens ---

TOKEN_BYTES = 32


class NewToken(NamedTuple):
    """A token, and its entry, which does not show it."""

    token: str
    sha256: str
    entry: str


def new_token(uid: str, scopes: Sequence[str], realm: str, expires: datetime | None) -> NewToken:
    """Make a random token.

    Args:
        uid: the uid of its holder.
        scopes: the scopes that it grants.
        realm: the realm in which the uid is unique.
        expires: the time of expiry, with an offset; None for never.

    Raises:
        Invalid: a file with this entry would be refused; the message says why.
    """
    token = secrets.token_urlsafe(TOKEN_BYTES)
    sha256 = hashlib.sha256(token.encode()).hexdigest()
    members = {"sha256": sha256, "uid": uid, "scopes": list(scopes), "realm": realm}
    # NOTE: strings and lists of JSON are those of TOML.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in members.items()]
    if expires is not None:
        lines.append(f"expires = {expires.isoformat()}")
    entry = "\n".join(["[[token]]", *lines]) + "\n"
    try:
        parsed(entry.encode())
    except ValueError as ex:
        raise Invalid(f"The broker would refuse the entry: {ex}.") from ex
    return NewToken(token, sha256, entry)


def add_entry(path: Path, entry: str) -> None:
    """Add an entry to a file of tokens, which is made if it is missing; a running broker takes it within a second.

    Raises:
        Invalid: the file is not one of tokens; it is left as it is.
        Unavailable: it can't be read or written, or is being changed.
    """
    try:
        with edited(path) as file:
            separator = "\n" if file.text else ""
            file.text = f"{file.text.rstrip()}\n{separator}{entry}" if file.text else entry
            parsed(file.text.encode())
    except BlockingIOError as ex:
        raise Unavailable(f"Another command is changing {path}; try again.") from ex
    except OSError as ex:
        raise Unavailable(f"The file of tokens {path} can't be changed: {ex.strerror}.") from ex
    except ValueError as ex:  # not TOML, not UTF-8, not tokens
        raise Invalid(f"{path} is not a file of tokens, and was not changed: {ex}.") from ex
