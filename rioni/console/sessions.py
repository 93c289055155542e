"""Sessions of browsers: the user's token and a secret, sealed in a cookie, which is worth nothing after the logout."""

import base64
import functools
import hashlib
import secrets
import time
from collections.abc import Callable, Container, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol, Self, TypeVar

import msgspec


if TYPE_CHECKING:
    from cryptography.fernet import Fernet


# --- Sessions of browsers: the user's token and a secret against forged requests, sealed in a cookie ---
#
# The server keeps only a record of ended sessions, so that every worker and node that knows the key can open a session.
# The cookie can't be read or changed by scripts or by the browser, is never sent with requests of other sites, and only
# over connections that the browser considers secure.


class Sealable(Protocol):
    """A struct that is sealed into cookies."""

    sealed_as: ClassVar[str]
    """Tells it from others in cookies; older and newer releases know it by this name."""


T = TypeVar("T", bound=Sealable)


class TokenTooLong(Exception):
    """The token does not fit into the cookies of a session; the text explains it."""


SESSION_S = 12 * 3_600
"""The most seconds that a session lasts; the token may end earlier."""
COOKIE_BYTES = 3_800
"""Browsers keep 4,096 bytes for name, value and attributes."""
COOKIES_MAX = 4
"""The broker takes 16,448 bytes of a header, and other applications of the host have cookies, too."""
TOKEN_BYTES_MAX = 10_000
"""The most bytes of a token as JSON; with the rest of a session, sealed, it fits into these cookies."""
NOTICE_CHARACTERS_MAX = 150


class LoginSession(msgspec.Struct, frozen=True):
    """A browser's session."""

    sealed_as: ClassVar[str] = "Session"
    csrf: str
    """The secret that forms must send, too."""
    token: str | None = None
    """The bearer token; None while nobody is logged in."""
    notice: str = ""
    """The notice that the next page shows: the outcome of a change."""
    begun_s: int = 0
    """When it began: a session that is sealed again later doesn't last longer."""

    @classmethod
    def new(cls, token: str | None = None) -> Self:
        """A new session, whose secrets nobody can know.

        Raises:
            TokenTooLong: no cookies hold it.
        """
        if len(msgspec.json.encode(token)) > TOKEN_BYTES_MAX:
            raise TokenTooLong(f"A session of the console holds tokens of {TOKEN_BYTES_MAX:,} characters at most.")
        return cls(csrf=secrets.token_urlsafe(24), token=token, begun_s=int(time.time()))

    def telling(self, notice: str) -> Self:
        """This session with a notice for the next page, cut if it is long; empty to remove it."""
        cut = notice if len(notice) <= NOTICE_CHARACTERS_MAX else f"{notice[: NOTICE_CHARACTERS_MAX - 3]}..."
        return msgspec.structs.replace(self, notice=cut)


class Sessions:
    """Seals sessions into cookies, and opens them.

    Args:
        secret: returns that from which the key is derived, the same in all workers and nodes; may block, and raise.
    """

    def __init__(self, secret: Callable[[], bytes]) -> None:
        self._secret = secret

    @functools.cached_property
    def _fernet(self) -> "Fernet":
        # PERF: few brokers have a console open.
        from cryptography.fernet import Fernet  # noqa: PLC0415
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

        key = HKDF(SHA256(), 32, salt=None, info=b"sessions of the rioni console").derive(self._secret())
        return Fernet(base64.urlsafe_b64encode(key))

    def open(self, cookies: Mapping[str, str], name: str) -> LoginSession | None:
        """The session in the cookies of a request; None if there is none, or it has ended or was changed."""
        sealed = "".join(cookies.get(each, "") for each in _names(name))
        session = self.unseal(sealed, LoginSession, SESSION_S)
        return session if session and time.time() - session.begun_s < SESSION_S else None

    def seal(self, session: Sealable) -> str:
        """The session, or a login that has begun, as text for cookies."""
        return self._fernet.encrypt(msgspec.json.encode([session.sealed_as, session])).decode()

    def unseal(self, sealed: str, kind: type[T], age_s: int) -> T | None:
        """The value that was sealed; None if it was something else, is older, or was changed."""
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - as above

        try:
            plain = self._fernet.decrypt(sealed.encode(), ttl=age_s)
            name, members = msgspec.json.decode(plain, type=tuple[str, msgspec.Raw])
            return msgspec.json.decode(members, type=kind) if name == kind.sealed_as else None
        except (InvalidToken, msgspec.MsgspecError, UnicodeEncodeError):
            return None


def cookie_name(host: str, *, secure: bool, base_path: str = "") -> str:
    """The name of the cookie, from the header `Host` and the base path.

    Other ports share their cookies, and a path gets those of the paths above it, where other brokers may be. Browsers
    take a cookie with such a guard over HTTPS only, and with `__Host-`, which allows no path but `/`, from no other
    host of the domain (RFC 6265bis).
    """
    port = host.rpartition(":")[2]
    guard = "" if not secure else "__Secure-" if base_path else "__Host-"
    return guard + "rioni_console" + (f"_{port}" if port.isdecimal() else "") + base_path.replace("/", "-")


def set_cookies(sealed: str, before: Container[str], name: str, base_path: str = "") -> Iterator[str]:
    """Values of headers `Set-Cookie` for a sealed session, which also remove cookies that a longer one has left.

    Args:
        sealed: the session.
        before: names of the cookies of the request.
        name: that of the cookie.
        base_path: the path below which the broker is served, empty for `/`; no other requests get the cookies.
    """
    assert len(sealed) <= COOKIE_BYTES * COOKIES_MAX
    for number, each in enumerate(_names(name)):
        value = sealed[number * COOKIE_BYTES : (number + 1) * COOKIE_BYTES]
        if value or each in before:
            age = SESSION_S if value else 0
            yield f"{each}={value}; Path={base_path or '/'}; HttpOnly; SameSite=Strict; Secure; Max-Age={age}"


def _names(name: str) -> tuple[str, ...]:
    return (name, *(f"{name}.{number}" for number in range(1, COOKIES_MAX)))


# Ends sessions before their time: a copy of the cookie is worth nothing after the logout, at any worker or node.

HOLDER_CHARACTERS = 16
"""The number of characters with which the ids of all sessions of one token begin."""


class SessionsUnavailable(Exception):
    """The sessions that have ended can't be read or written at present."""


class EndedSessionStore(Protocol):
    """Keeps which sessions have ended, for all processes.

    There is a bound. Beyond it, those who have ended the most sessions lose the oldest of theirs: nobody can push out
    the sessions of others, whose copied cookies would be good again. Ids of one holder have the same beginning, of
    `HOLDER_CHARACTERS`.

    Calls block on the database; all raise SessionsUnavailable.
    """

    def end(self, session_id: str, until_s: int, now_s: int) -> None:
        """Keep that a session has ended until it would be over anyway (seconds since the epoch)."""

    def has_ended(self, session_id: str) -> bool:
        """Whether a session has ended."""


class EndedSessions:
    """The sessions that have ended before their time.

    Args:
        store: of all processes.
    """

    def __init__(self, store: EndedSessionStore) -> None:
        self._store = store

    def end(self, session: LoginSession) -> None:
        """End a session; nothing is kept of one without a token. Blocks on the database; raises SessionsUnavailable."""
        if session.token is not None:
            self._store.end(_id(session), session.begun_s + SESSION_S, int(time.time()))

    def has_ended(self, session: LoginSession) -> bool:
        """Whether a session has ended. Blocks on the database, if it has a token; raises SessionsUnavailable."""
        return session.token is not None and self._store.has_ended(_id(session))


def _id(session: LoginSession) -> str:
    """The id of a session, made of hashes: neither its secret, which no other session has, nor its token is stored."""
    holder = hashlib.sha256((session.token or "").encode()).hexdigest()[:HOLDER_CHARACTERS]
    return holder + hashlib.sha256(session.csrf.encode()).hexdigest()
