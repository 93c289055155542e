"""What every request of a browser passes: its session, protection against forged requests, and strict headers."""

from collections.abc import Mapping
from hmac import compare_digest
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import falcon
import msgspec

from rioni.console.sessions import Session, Sessions, set_cookies


FORM_BYTES_MAX = 2_500_000
"""An event type with a schema as large as the API takes, quoted as forms are."""
FIELDS_MAX = 1_000
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
_OPEN = ("/console/login", "/console/static/", "/console/logout")
"""What is shown without a login."""


def session_of(req: falcon.Request) -> Session:
    """The session of the browser."""
    session: Session = req.context.session
    return session


class SecurityMiddleware:
    """Opens the session, refuses forged requests, asks for a login, and sets headers."""

    def __init__(self, sessions: Sessions, *, needs_token: bool) -> None:
        self._sessions, self._needs_token = sessions, needs_token

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Open the session, and check what changes something."""
        session = self._sessions.open(req.get_header("Cookie") or "")
        req.context.session_changes = {} if session else {"csrf": None}
        req.context.session = session = session or Session.new()
        req.context.form = {}
        if req.method == "POST":
            req.context.form = _form(req)
            self._check(req, session)
        elif req.path.startswith("/console/api/") and not _is_own_site(req):
            raise falcon.HTTPForbidden(description="Pages of other sites can't use the console.")
        if self._needs_token and session.token is None and not req.path.startswith(_OPEN) and req.path != "/":
            if req.path.startswith("/console/api/") or req.get_param("format") == "json":
                raise falcon.HTTPUnauthorized(description="Log in at /console/login.")
            query = f"?next={falcon.uri.encode_value(req.relative_uri)}" if req.method == "GET" else ""
            raise falcon.HTTPSeeOther(f"/console/login{query}")

    def process_response(self, req: falcon.Request, resp: falcon.Response, _resource: Any, _ok: bool) -> None:  # noqa: FBT001 - Falcon's interface
        """Set the headers, and the cookies of a session that is new or changed."""
        for name, value in HEADERS.items():
            resp.set_header(name, value)
        if "/static/" in req.path:
            return
        resp.set_header("Cache-Control", "no-store")
        changes = getattr(req.context, "session_changes", {})
        if not changes:
            return
        session = req.context.session
        known = {name: value for name, value in changes.items() if value is not None}
        sealed = self._sessions.seal(msgspec.structs.replace(session, **known))
        for cookie in set_cookies(sealed, req.get_header("Cookie") or "", secure=is_secure(req)):
            resp.append_header("Set-Cookie", cookie)

    def _check(self, req: falcon.Request, session: Session) -> None:
        given = req.context.form.get("csrf") or req.get_header(CSRF_HEADER) or ""
        if not _is_own_site(req) or not compare_digest(given.encode(), session.csrf.encode()):
            raise falcon.HTTPForbidden(
                title="The form is not of this session",
                description="Load the page again and repeat the change. Cookies must be allowed.",
            )


def is_secure(req: falcon.Request) -> bool:
    """Whether the browser sees HTTPS, from this server or from a proxy in front of it."""
    return req.scheme == "https" or req.get_header("X-Forwarded-Proto") == "https"


def _is_own_site(req: falcon.Request) -> bool:
    """Whether a page of this console sends the request; browsers say so in headers that pages can't change."""
    if (site := req.get_header("Sec-Fetch-Site")) is not None:
        return site in OWN_SITE
    origin = req.get_header("Origin")
    return origin is None or urlsplit(origin).netloc == req.get_header("Host")


def _form(req: falcon.Request) -> dict[str, str]:
    """The members of a form; raises HTTPBadRequest, HTTPContentTooLarge."""
    length = req.content_length or 0
    if length > FORM_BYTES_MAX:
        raise falcon.HTTPContentTooLarge(description=f"A form may have {FORM_BYTES_MAX:,} bytes.")
    body = req.env["wsgi.input"].read(length)
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError as ex:
        raise falcon.HTTPBadRequest(description=f"This is not a form: {ex}") from ex
    return dict(fields)
