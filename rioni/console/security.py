"""The checks that every request of a browser passes: session, forged requests, forms, strict headers."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from hmac import compare_digest
from typing import Any

import falcon

from rioni.console.api import Compute, in_place
from rioni.console.rendering import render
from rioni.console.sessions import EndedSessions, LoginSession, Sessions, SessionsUnavailable, cookie_name, set_cookies


# --- Reads the forms that pages send, in bounded time and memory ---

FORM_BYTES_MAX = 2_500_000
"""An event type with a schema as large as the API takes, quoted as forms are."""
LOGIN_BYTES_MAX = 65_536
"""The most bytes of a form of a user who is not logged in."""
FIELDS_MAX = 100
READING_BYTES_MAX = 50_000_000
"""The most bytes of larger forms than that, all together, that a worker holds."""
READ_BYTES = 65_536
"""PERF: gunicorn copies bytes that it has received and not passed on yet, so larger pieces take longer."""
BREATH_S = 0.001
"""Seconds for which others go on after each piece. PERF: together 40 ms of the longest form."""


class Forms:
    """Reads forms, of all together a bounded number of bytes at once; `compute` decodes large ones."""

    def __init__(self, compute: Compute = in_place) -> None:
        self._of_clients, self._compute = Counter[str](), compute

    def read(self, req: falcon.Request, client: str, *, logged_in: bool) -> dict[str, str]:
        """The members of a form; blocks until it has arrived.

        Args:
            req: with the form.
            client: for whom its bytes are counted.
            logged_in: whether it may be large.

        Raises:
            HTTPBadRequest: it is not a form, not whole, or has a field twice.
            HTTPContentTooLarge: it is larger than the user may send.
            HTTPError: it comes too slowly (408).
            HTTPServiceUnavailable: the client, or all of them, send large forms.
        """
        length, most = req.content_length or 0, FORM_BYTES_MAX if logged_in else LOGIN_BYTES_MAX
        if length > most:
            raise falcon.HTTPContentTooLarge(description=f"A form may have {most:,} bytes.")
        held = length if length > LOGIN_BYTES_MAX else 0
        # The limit is that of bodies of the API: a client that holds all it can leaves as much room for others.
        free = READING_BYTES_MAX - self._of_clients.total()
        if held and self._of_clients[client] + held > min(free, READING_BYTES_MAX // 2):
            whose = "of this client" if self._of_clients[client] else "of others"
            raise falcon.HTTPServiceUnavailable(
                description=f"Too many large forms {whose} are being read. Try again.", retry_after=1
            )
        self._of_clients[client] += held
        try:
            body = b"".join(_pieces(req.env["wsgi.input"].read, length))
        except TimeoutError as ex:
            raise falcon.HTTPError(falcon.HTTP_408, description="The form came too slowly.") from ex
        finally:
            self._of_clients[client] -= held
            if not self._of_clients[client]:
                del self._of_clients[client]
        if len(body) < length:
            raise falcon.HTTPBadRequest(description="The form is not whole.")
        return self._compute(_members, body) if length > LOGIN_BYTES_MAX else _members(body)


def _pieces(read: Callable[[int], bytes], length: int) -> Iterator[bytes]:
    while length > 0 and (piece := read(min(length, READ_BYTES))):
        yield piece
        length -= len(piece)
        if length:
            time.sleep(BREATH_S)


def _members(body: bytes) -> dict[str, str]:
    # PERF: 40 ms of the longest form.
    if body.count(b"&") >= FIELDS_MAX:
        raise falcon.HTTPBadRequest(description=f"A form may have {FIELDS_MAX:,} fields.")
    if b"\\" in body:
        raise falcon.HTTPBadRequest(description="This is not a form: it has a backslash that is not quoted.")
    try:
        pairs = [field.partition("=") for field in body.decode("ascii").split("&") if field]
        members = {_decoded(name): _decoded(value) for name, _, value in pairs}
    except UnicodeError as ex:
        raise falcon.HTTPBadRequest(description=f"This is not a form: {ex}") from ex
    if len(members) < len(pairs):
        raise falcon.HTTPBadRequest(description="The form has a field twice.")
    return members


def _decoded(text: str) -> str:
    # PERF: 20 to 50 ms for the longest form, where `unquote_plus` takes 280 ms, in which the worker does nothing else.
    escaped = text.replace("+", " ").replace("%", "\\x")
    return escaped.encode().decode("unicode_escape").encode("latin-1").decode()


# The checks that every request of a browser passes: its session, protection against forged requests, and strict
# headers.

CLIENT = "rioni.client"
"""The variable of a WSGI environment with the key of the client's address."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content security policy: files of the console alone, no inline script or style, no frame."""
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
CSRF_HEADER = "X-CSRF-Token"
OWN_SITE = frozenset(("same-origin", "none"))
_CALLBACK = "/console/login/callback"
"""The page to which the provider of a login sends the browser, from the provider's site."""
_FILES = "/console/static/"
_OPEN = ("/console/login", _FILES, "/console/logout")
"""The pages that are shown without a login."""


def session_of(req: falcon.Request) -> LoginSession:
    """The session of the browser."""
    session: LoginSession = req.context.session
    return session


class SecurityMiddleware:
    """Opens the session, refuses forged requests, asks for a login, and sets headers."""

    def __init__(
        self, sessions: Sessions, ended: EndedSessions, *, needs_token: bool, compute: Compute = in_place
    ) -> None:
        self._sessions, self._ended, self._needs_token, self._forms = sessions, ended, needs_token, Forms(compute)

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Open the session, and check what changes something."""
        opened = self._opened(req)
        session = opened or LoginSession.new()
        req.context.session, req.context.form = session, {}
        # Requests of other sites come without the cookie, which must not be replaced then.
        req.context.kept = session if req.get_header("Sec-Fetch-Site") == "cross-site" else opened
        if req.method == "POST":
            self._check_form(req, opened)
        elif not _is_own_site(req):
            if req.get_header("Sec-Fetch-Mode") != "navigate" or req.path.startswith("/console/api/"):
                raise falcon.HTTPForbidden(description="Pages of other sites can't use the console.")
            if opened is None and req.path != _CALLBACK:
                _come_again(req, resp)
                return
        if self._needs_token and session.token is None and not req.path.startswith(_OPEN) and req.path != "/":
            if req.path.startswith("/console/api/") or req.get_param("format") == "json":
                raise falcon.HTTPUnauthorized(description=f"Log in at {req.root_path}/console/login.")
            query = f"?next={falcon.uri.encode_value(req.relative_uri)}" if req.method == "GET" else ""
            raise falcon.HTTPSeeOther(f"{req.root_path}/console/login{query}")

    def process_response(self, req: falcon.Request, resp: falcon.Response, _resource: Any, _ok: bool) -> None:  # noqa: FBT001 - Falcon's interface
        """Set the headers, and the cookies of a session that is new or changed."""
        for name, value in HEADERS.items():
            resp.set_header(name, value)
        if "/static/" in req.path:
            return
        resp.set_header("Cache-Control", "no-store")
        session = getattr(req.context, "session", None)
        if session is None or session == req.context.kept:
            return
        for cookie in set_cookies(self._sessions.seal(session), req.cookies, session_cookie(req), req.root_path):
            resp.append_header("Set-Cookie", cookie)

    def _opened(self, req: falcon.Request) -> LoginSession | None:
        """The session of the request's cookies, if it has not ended; files are the same for all."""
        opened = self._sessions.open(req.cookies, session_cookie(req))
        if opened is None or req.path.startswith(_FILES):
            return opened
        try:
            return None if self._ended.has_ended(opened) else opened
        except SessionsUnavailable as ex:
            raise falcon.HTTPServiceUnavailable(description="Sessions can't be checked at present.") from ex

    def _check_form(self, req: falcon.Request, opened: LoginSession | None) -> None:
        """Read a form of this session; of those whose session has ended only short ones, to show them again."""
        logged_in = opened is not None and (opened.token is not None or not self._needs_token)
        if _is_own_site(req) and (opened is not None or (req.content_length or 0) <= LOGIN_BYTES_MAX):
            req.context.form = self._forms.read(req, client_of(req), logged_in=logged_in)
        if opened is not None and _is_own_site(req):
            given = req.context.form.get("csrf") or req.get_header(CSRF_HEADER) or ""
            if compare_digest(given.encode(), opened.csrf.encode()):
                return
        raise falcon.HTTPForbidden(
            title="The form is not of this session",
            description="Load the page again and repeat the change. Cookies must be allowed.",
        )


def client_of(req: falcon.Request) -> str:
    """The identity of a browser for counts that are made before its user is known."""
    return str(req.env[CLIENT])


def session_cookie(req: falcon.Request) -> str:
    """The name of the cookie of the session."""
    return cookie_name(req.get_header("Host") or "", secure=is_secure(req), base_path=req.root_path)


def _come_again(req: falcon.Request, resp: falcon.Response) -> None:
    """Let the browser follow a link of another site once more, now from this one, with the cookie of the session."""
    resp.content_type = "text/html; charset=utf-8"
    resp.text = render("continue.html.jinja", req.root_path, {"next": req.relative_uri})
    resp.complete = True


def is_secure(req: falcon.Request) -> bool:
    """Whether the browser sees HTTPS, from this server or from a proxy in front of it."""
    return req.scheme == "https" or req.get_header("X-Forwarded-Proto") == "https"


def _is_own_site(req: falcon.Request) -> bool:
    """Whether a page of this console sends the request; browsers report it in headers that pages can't change."""
    if (site := req.get_header("Sec-Fetch-Site")) is not None:
        return site in OWN_SITE
    origin = req.get_header("Origin")
    return origin is None or origin.partition("://")[2] == req.get_header("Host")
