"""Logins: with a token that the user pastes, or at an OpenID Connect provider; and logout."""

import contextlib
import re
import secrets
import threading  # threads: greenlets only: a lock with a deadline
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import falcon
import msgspec

from rioni.console.api import Api, ApiProblem, Wsgi
from rioni.console.rendering import render
from rioni.console.security import client_of, is_secure, session_cookie, session_of
from rioni.console.sessions import EndedSessions, LoginSession, Sessions, SessionsUnavailable, TokenTooLong


# --- Login with a token that the user pastes, and logout ---

_HTML = "text/html; charset=utf-8"


class LoginResource:
    """`/console/login`."""

    def __init__(self, api: Wsgi, provider: str | None, ended: EndedSessions) -> None:
        self._api, self._provider, self._ended = api, provider, ended

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Ask for a token; instead of a part of a page, which scripts asked for, as a separate page."""
        if req.get_header("HX-Request"):
            resp.set_header("HX-Redirect", req.relative_uri)
        self._show(req, resp, "")

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Try the token, and begin a session with it."""
        token = req.context.form.get("token", "").strip().removeprefix("Bearer ").strip()
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            self._show(req, resp, "Paste a token: printable characters without spaces.", falcon.HTTP_422)
            return
        try:
            begun = LoginSession.new(token)
            Api(self._api, req.env, token).get("/registry/partition-strategies")
        except TokenTooLong as ex:
            self._show(req, resp, str(ex), falcon.HTTP_422)
            return
        except ApiProblem as ex:
            self._show(req, resp, f"The broker refuses this token: {_reason(ex)}", falcon.HTTP_403)
            return
        end(self._ended, session_of(req))
        req.context.session = begun
        resp.status = falcon.HTTP_SEE_OTHER
        resp.location = local_path(req.root_path, req.context.form.get("next", ""))

    def _show(self, req: falcon.Request, resp: falcon.Response, problem: str, status: str = falcon.HTTP_200) -> None:
        context: dict[str, Any] = {
            "title": "Log in",
            "session": session_of(req),
            "problem": problem,
            "provider": self._provider,
            "next": local_path(req.root_path, req.get_param("next") or req.context.form.get("next", "")),
        }
        resp.status = status
        resp.content_type = _HTML
        resp.text = render("login.html.jinja", req.root_path, context)


def _reason(problem: ApiProblem) -> str:
    reason = problem.detail.partition("resource: ")[2] if problem.status == HTTPStatus.UNAUTHORIZED else ""
    return f"{reason}." if reason else str(problem)


class LogoutResource:
    """`/console/logout`."""

    def __init__(self, ended: EndedSessions) -> None:
        self._ended = ended

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """End the session, wherever its cookie is."""
        end(self._ended, session_of(req))
        req.context.session = LoginSession.new()
        resp.status = falcon.HTTP_SEE_OTHER
        resp.location = f"{req.root_path}/console/login"


def end(ended: EndedSessions, session: LoginSession) -> None:
    """End a session that another one takes the place of; raises HTTPServiceUnavailable if that can't be kept."""
    try:
        ended.end(session)
    except SessionsUnavailable as ex:
        raise falcon.HTTPServiceUnavailable(description="The session can't be ended at present. Try again.") from ex


def local_path(base_path: str, text: str) -> str:
    """A page of the console below a base path; the first one if the text leads elsewhere."""
    console = f"{base_path}/console"
    is_local = text == console or text.startswith((f"{console}/", f"{console}?"))
    # Browsers resolve these segments, quoted or not.
    climbs = any(unquote(segment) in (".", "..") for segment in re.split("[?#]", text)[0].split("/"))
    plain = is_local and not climbs and "\\" not in text and "//" not in text and text.isprintable()
    return text if plain else console


# --- Login at an OpenID Connect provider: authorization code with PKCE (RFC 7636), through Authlib ---

CALLBACK = "/console/login/callback"
LOGIN_S = 600
"""Seconds that a user may take to log in at the provider."""
METADATA_S = 600
"""Seconds for which the provider's endpoints are remembered."""
FAILED_S = 5
"""Seconds for which it is not asked again for them after it has failed."""
WAIT_S = 15
"""Seconds that a login waits for another one that asks for them, which has a shorter deadline."""
NEXT_BYTES_MAX = 2_000
"""The most bytes of the page after the login, which a cookie has to hold; longer ones become the first page."""
Turn = Callable[[str], AbstractContextManager[None]]
"""Waits until a client, named by its address, may speak with the provider; raises ProviderBusy."""


def any_turn(_client: str) -> AbstractContextManager[None]:
    """No waiting, in processes that serve nobody else."""
    return contextlib.nullcontext()


class ProviderFailed(Exception):
    """The provider did not answer, or not as it should; the text gives the reason."""


class ProviderBusy(Exception):
    """Too many users log in now."""


class Pending(msgspec.Struct, frozen=True):
    """A login that has begun."""

    sealed_as: ClassVar[str] = "Pending"
    state: str
    nonce: str
    verifier: str
    next: str


class Provider:
    """An OpenID Connect provider.

    Args:
        issuer: its URL, below which its metadata is.
        client_id: of the console there.
        client_secret: None for a public client.
        scope: the scopes that are asked for, separated by spaces.
        token: which of its tokens the API takes: `access_token` or `id_token`.
        turn: lets those who log in connect to it; `begin` and `finish` are called within.
        note_outcome: given why the provider does not work, or an empty text if it does; only users would see it else.
    """

    def __init__(
        self,
        issuer: str,
        client_id: str,
        client_secret: str | None,
        scope: str,
        token: str,
        turn: Turn = any_turn,
        note_outcome: Callable[[str], object] = str,
    ) -> None:
        self.turn, self._note_outcome = turn, note_outcome
        self.name = urlsplit(issuer).hostname or issuer
        self._issuer, self._client_id, self._client_secret = issuer.rstrip("/"), client_id, client_secret
        self._scope, self._token = scope, token
        self._lock = threading.Lock()
        self._metadata: Mapping[str, Any] = {}
        self._failure = ""
        self._known_until_s = 0.0

    def begin(self, redirect_uri: str, following: str) -> tuple[str, Pending]:
        """The address that the browser is sent to, and the login that is remembered; blocks on the provider.

        Args:
            redirect_uri: where the provider sends it back.
            following: the page after the login, of `NEXT_BYTES_MAX` at most.

        Raises:
            ProviderFailed: it does not announce its endpoints.
        """
        state, nonce, verifier = (secrets.token_urlsafe(48) for _ in range(3))
        pending = Pending(state=state, nonce=nonce, verifier=verifier, next=following)
        endpoint = self._endpoint("authorization_endpoint")
        with self._client(redirect_uri) as client:
            address, _ = client.create_authorization_url(
                endpoint,
                state=pending.state,
                nonce=pending.nonce,
                code_verifier=pending.verifier,
            )
        return address, pending

    def finish(self, redirect_uri: str, query: str, pending: Pending) -> str:
        """The token for the code that the provider sent back; blocks on the provider.

        Raises:
            ProviderFailed: it refuses the code, or has no such token.
        """
        from authlib.common.errors import AuthlibBaseError  # noqa: PLC0415 - only those who log in so need it
        from httpx import HTTPError  # noqa: PLC0415

        try:
            with self._client(redirect_uri, pending.state) as client:
                tokens = client.fetch_token(
                    self._endpoint("token_endpoint"),
                    authorization_response=f"{redirect_uri}?{query}",
                    code_verifier=pending.verifier,
                )
        except (AuthlibBaseError, HTTPError, ValueError) as ex:
            if isinstance(ex, HTTPError):
                self._note_outcome(f"{self.name} does not answer: {ex}")
            raise ProviderFailed(f"{self.name} refused the login: {ex}") from ex
        self._note_outcome("")
        token = tokens.get(self._token)
        if not isinstance(token, str):
            raise ProviderFailed(f"{self.name} sent no {self._token}")
        if "id_token" in tokens:
            self._check(_claims(tokens["id_token"]), pending)
        return token

    def _check(self, claims: Mapping[str, Any], pending: Pending) -> None:
        """Check for which login an id token is (OpenID Connect, 3.1.3.7); it comes from the provider itself."""
        if claims.get("nonce") != pending.nonce:
            raise ProviderFailed(f"{self.name} answered another login than the one that was begun")
        audience = claims.get("aud")
        if self._client_id not in (audience if isinstance(audience, list) else [audience]):
            raise ProviderFailed(f"{self.name} answered another client than {self._client_id}")
        if not self.is_issuer(claims.get("iss")):
            raise ProviderFailed(f"{self.name} sent a token of another issuer")

    def is_issuer(self, text: object) -> bool:
        """Whether a provider that calls itself so is this one."""
        return isinstance(text, str) and text.rstrip("/") == self._issuer

    def _client(self, redirect_uri: str, state: str | None = None) -> Any:
        from authlib.integrations.httpx_client import OAuth2Client  # noqa: PLC0415 - see finish

        from rioni.console.bounded_transport import BoundedTransport  # noqa: PLC0415

        return OAuth2Client(
            self._client_id,
            self._client_secret,
            scope=self._scope,
            redirect_uri=redirect_uri,
            state=state,
            code_challenge_method="S256",
            token_endpoint_auth_method="client_secret_basic" if self._client_secret else "none",
            transport=BoundedTransport(),
        )

    def _endpoint(self, name: str) -> str:
        """An address of the provider, which is asked for its metadata by one login at a time."""
        if not self._lock.acquire(timeout=WAIT_S):
            raise ProviderFailed(f"{self.name} does not answer")
        try:
            if time.monotonic() >= self._known_until_s:
                self._metadata, self._failure = self._fetched()
                self._note_outcome(self._failure)
                self._known_until_s = time.monotonic() + (FAILED_S if self._failure else METADATA_S)
        finally:
            self._lock.release()
        if self._failure:
            raise ProviderFailed(self._failure)
        endpoint = self._metadata.get(name)
        if not isinstance(endpoint, str):
            raise ProviderFailed(f"{self.name} names no {name}")
        return endpoint

    def _fetched(self) -> tuple[Mapping[str, Any], str]:
        """The metadata of the provider, or the reason why they can't be read."""
        import httpx  # noqa: PLC0415 - see finish

        from rioni.console.bounded_transport import BoundedTransport  # noqa: PLC0415

        address = f"{self._issuer}/.well-known/openid-configuration"
        try:
            with httpx.Client(transport=BoundedTransport()) as client:
                metadata = client.get(address).raise_for_status().json()
        except (httpx.HTTPError, ValueError) as ex:
            return {}, f"{address} does not answer: {ex}"
        if not isinstance(metadata, dict) or not self.is_issuer(metadata.get("issuer")):
            return {}, f"{address} is not the metadata of {self._issuer}"
        return metadata, ""


class ProviderLoginResource:
    """`/console/login/provider` leads to the provider."""

    def __init__(self, provider: Provider, sessions: Sessions) -> None:
        self._provider, self._sessions = provider, sessions

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Redirect, and remember the values that the answer must match."""
        following = local_path(req.root_path, req.get_param("next") or "")
        if len(following.encode()) > NEXT_BYTES_MAX:
            following = local_path(req.root_path, "")
        try:
            with self._provider.turn(client_of(req)):
                address, pending = self._provider.begin(_callback(req), following)
        except (ProviderFailed, ProviderBusy) as ex:
            raise falcon.HTTPServiceUnavailable(description=str(ex)) from ex
        # The provider's redirect comes from another site, so this cookie is not as strict as that of the session.
        resp.append_header("Set-Cookie", _cookie(req, self._sessions.seal(pending), LOGIN_S))
        resp.status = falcon.HTTP_SEE_OTHER
        resp.location = address


class ProviderCallbackResource:
    """`/console/login/callback`, to which the provider sends the browser back."""

    def __init__(self, provider: Provider, api: Wsgi, sessions: Sessions, ended: EndedSessions) -> None:
        self._provider, self._api, self._sessions, self._ended = provider, api, sessions, ended

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Begin a session with the token that the provider gives for the code."""
        pending = self._sessions.unseal(req.cookies.get(_cookie_name(req), ""), Pending, LOGIN_S)
        resp.append_header("Set-Cookie", _cookie(req, "", 0))
        try:
            token = self._token(req, pending)
            begun = LoginSession.new(token)
            Api(self._api, req.env, token).get("/registry/partition-strategies")
        except ProviderBusy as ex:
            raise falcon.HTTPServiceUnavailable(description=str(ex)) from ex
        except (ProviderFailed, TokenTooLong, ApiProblem) as ex:
            raise falcon.HTTPForbidden(title="The login failed", description=str(ex)) from ex
        end(self._ended, session_of(req))
        req.context.session = begun
        # A redirect would still count as the provider's, and the browser would not send the new session with it.
        resp.content_type = _HTML
        following = pending.next if pending else local_path(req.root_path, "")
        resp.text = render("continue.html.jinja", req.root_path, {"next": following})

    def _token(self, req: falcon.Request, pending: Pending | None) -> str:
        if pending is None or not secrets.compare_digest(
            pending.state.encode(), (req.get_param("state") or "").encode()
        ):
            raise ProviderFailed("This login was not begun in this browser, or took too long. Begin again.")
        # RFC 9207: providers identify themselves, so that a code of one is never shown to another.
        if (issuer := req.get_param("iss")) is not None and not self._provider.is_issuer(issuer):
            raise ProviderFailed(f"{issuer} answered instead of {self._provider.name}")
        if error := req.get_param("error"):
            raise ProviderFailed(f"{self._provider.name}: {req.get_param('error_description') or error}")
        with self._provider.turn(client_of(req)):
            return self._provider.finish(_callback(req), req.query_string, pending)


def _callback(req: falcon.Request) -> str:
    return f"{'https' if is_secure(req) else 'http'}://{req.netloc}{req.root_path}{CALLBACK}"


def _cookie_name(req: falcon.Request) -> str:
    return f"{session_cookie(req)}_login"


def _cookie(req: falcon.Request, value: str, age_s: int) -> str:
    return f"{_cookie_name(req)}={value}; Path={req.root_path or '/'}; HttpOnly; SameSite=Lax; Secure; Max-Age={age_s}"


def _claims(id_token: object) -> Mapping[str, Any]:
    """The payload of a token, whose signature the API checks if it takes that token."""
    import jwt  # noqa: PLC0415 - see Provider.finish

    try:
        claims: Mapping[str, Any] = jwt.decode(str(id_token), options={"verify_signature": False})
    except jwt.InvalidTokenError:
        return {}
    return claims
