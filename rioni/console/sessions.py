"""Sessions of browsers: the user's token and a secret against forged requests, sealed in a cookie.

Nothing is kept on the server, so that every worker and node that knows the key can open a session. The cookie can't be
read or changed by scripts or by the browser, is never sent with requests of other sites, and only over connections that
the browser considers secure.
"""

import base64
import functools
import secrets
from collections.abc import Callable, Iterator
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec


if TYPE_CHECKING:
    from cryptography.fernet import Fernet


T = TypeVar("T")

SESSION_S = 12 * 3_600
"""How long a session lasts at most; the token may end earlier."""
COOKIE = "rioni_console"
COOKIE_BYTES = 3_800
"""Browsers keep 4,096 bytes for name, value and attributes."""
COOKIES_MAX = 6


class Session(msgspec.Struct, frozen=True):
    """A browser's session."""

    csrf: str
    """What forms must send, too."""
    token: str | None = None
    """The bearer token; None while nobody is logged in."""
    notice: str = ""
    """What the next page tells: the outcome of a change."""

    @classmethod
    def new(cls, token: str | None = None) -> Self:
        """A session that nobody had before, so that nobody else can know it."""
        return cls(csrf=secrets.token_urlsafe(24), token=token)


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

    def open(self, cookies: str) -> Session | None:
        """The session in a header `Cookie`; None if there is none, or it has ended or was changed."""
        return self.unseal(_joined(cookies), Session, SESSION_S)

    def seal(self, session: msgspec.Struct) -> str:
        """The session, or a login that has begun, as text for cookies."""
        return self._fernet.encrypt(msgspec.json.encode([type(session).__name__, session])).decode()

    def unseal(self, sealed: str, kind: type[T], age_s: int) -> T | None:
        """What was sealed; None if it was something else, is older, or was changed."""
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - as above

        try:
            plain = self._fernet.decrypt(sealed.encode(), ttl=age_s)
            name, members = msgspec.json.decode(plain, type=tuple[str, msgspec.Raw])
            return msgspec.json.decode(members, type=kind) if name == kind.__name__ else None
        except (InvalidToken, msgspec.MsgspecError, UnicodeEncodeError):
            return None


def set_cookies(sealed: str, before: str, *, secure: bool) -> Iterator[str]:
    """Values of headers `Set-Cookie` for a sealed session, which also remove what a longer one has left.

    Args:
        sealed: the session.
        before: the header `Cookie` of the request.
        secure: whether the browser sees HTTPS.

    Raises:
        ValueError: the session is too large.
    """
    pieces = [sealed[start : start + COOKIE_BYTES] for start in range(0, len(sealed), COOKIE_BYTES)]
    if len(pieces) > COOKIES_MAX:
        raise ValueError("The token is too long for a session of the console")
    for number in range(COOKIES_MAX):
        name, value = _name(number, secure=secure), "".join(pieces[number : number + 1])
        if value or f"{name}=" in before:
            age = SESSION_S if value else 0
            yield f"{name}={value}; Path=/; HttpOnly; SameSite=Strict; Secure; Max-Age={age}"


def _name(number: int, *, secure: bool) -> str:
    # Over HTTPS no other host of the domain can set a cookie of such a name (RFC 6265bis).
    return ("__Host-" if secure else "") + COOKIE + (f".{number}" if number else "")


def _joined(header: str) -> str:
    cookies = SimpleCookie()
    try:
        cookies.load(header)
    except CookieError:
        return ""
    for secure in (True, False):
        names = [_name(number, secure=secure) for number in range(COOKIES_MAX)]
        if names[0] in cookies:
            return "".join(cookies[name].value for name in names if name in cookies)
    return ""
