"""Login at an OpenID Connect provider: authorization code with PKCE (RFC 7636), through Authlib."""

import secrets
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import falcon
import msgspec

from rioni.console.api import Api, ApiProblem, Wsgi
from rioni.console.assets import asset_url
from rioni.console.login import local_path
from rioni.console.rendering import render
from rioni.console.security import is_secure
from rioni.console.sessions import Session, Sessions


if TYPE_CHECKING:
    from collections.abc import Mapping


COOKIE = "rioni_console_login"
CALLBACK = "/console/login/callback"
LOGIN_S = 600
"""How long a user may take to log in at the provider."""
METADATA_S = 600
"""How long the provider's endpoints are remembered."""
TIMEOUT_S = 10
_HTML = "text/html; charset=utf-8"


class ProviderFailed(Exception):
    """The provider did not answer, or not as it should; the text says how."""


class Pending(msgspec.Struct, frozen=True):
    """A login that has begun."""

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
        scope: what is asked for, separated by spaces.
        token: which of its tokens the API takes: `access_token` or `id_token`.
    """

    def __init__(self, issuer: str, client_id: str, client_secret: str | None, scope: str, token: str) -> None:
        self.name = urlsplit(issuer).hostname or issuer
        self._issuer, self._client_id, self._client_secret = issuer.rstrip("/"), client_id, client_secret
        self._scope, self._token = scope, token
        self._metadata: Mapping[str, Any] = {}
        self._fetched_s = -float(METADATA_S)

    def begin(self, redirect_uri: str, following: str) -> tuple[str, Pending]:
        """Where the browser is sent, and what is remembered of that; blocks on the provider.

        Raises:
            ProviderFailed: it does not tell its endpoints.
        """
        state, nonce, verifier = (secrets.token_urlsafe(48) for _ in range(3))
        pending = Pending(state=state, nonce=nonce, verifier=verifier, next=following)
        with self._client(redirect_uri) as client:
            address, _ = client.create_authorization_url(
                self._endpoint("authorization_endpoint"),
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
            raise ProviderFailed(f"{self.name} refused the login: {ex}") from ex
        token = tokens.get(self._token)
        if not isinstance(token, str):
            raise ProviderFailed(f"{self.name} sent no {self._token}")
        if isinstance(tokens.get("id_token"), str) and _nonce(tokens["id_token"]) != pending.nonce:
            raise ProviderFailed(f"{self.name} answered another login than the one that was begun")
        return token

    def _client(self, redirect_uri: str, state: str | None = None) -> Any:
        from authlib.integrations.httpx_client import OAuth2Client  # noqa: PLC0415 - see finish

        return OAuth2Client(
            self._client_id,
            self._client_secret,
            scope=self._scope,
            redirect_uri=redirect_uri,
            state=state,
            code_challenge_method="S256",
            token_endpoint_auth_method="client_secret_basic" if self._client_secret else "none",
            timeout=TIMEOUT_S,
        )

    def _endpoint(self, name: str) -> str:
        import httpx  # noqa: PLC0415 - see finish

        if time.monotonic() - self._fetched_s >= METADATA_S:
            address = f"{self._issuer}/.well-known/openid-configuration"
            try:
                metadata = httpx.get(address, timeout=TIMEOUT_S).raise_for_status().json()
            except (httpx.HTTPError, ValueError) as ex:
                raise ProviderFailed(f"{address} does not answer: {ex}") from ex
            if not isinstance(metadata, dict) or metadata.get("issuer", "").rstrip("/") != self._issuer:
                raise ProviderFailed(f"{address} is not the metadata of {self._issuer}")
            self._metadata, self._fetched_s = metadata, time.monotonic()
        endpoint = self._metadata.get(name)
        if not isinstance(endpoint, str):
            raise ProviderFailed(f"{self.name} names no {name}")
        return endpoint


class ProviderLoginResource:
    """`/console/login/provider` leads to the provider."""

    def __init__(self, provider: Provider, sessions: Sessions) -> None:
        self._provider, self._sessions = provider, sessions

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Redirect, and remember what the answer must match."""
        try:
            address, pending = self._provider.begin(_callback(req), local_path(req.get_param("next") or ""))
        except ProviderFailed as ex:
            raise falcon.HTTPServiceUnavailable(description=str(ex)) from ex
        # The provider's redirect comes from another site, so this cookie is not as strict as that of the session.
        resp.append_header("Set-Cookie", _cookie(self._sessions.seal(pending), LOGIN_S))
        resp.status = falcon.HTTP_SEE_OTHER
        resp.location = address


class ProviderCallbackResource:
    """`/console/login/callback`, where the provider sends the browser back."""

    def __init__(self, provider: Provider, api: Wsgi, sessions: Sessions) -> None:
        self._provider, self._api, self._sessions = provider, api, sessions

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Begin a session with the token that the provider gives for the code."""
        pending = self._sessions.unseal((req.get_cookie_values(COOKIE) or [""])[0], Pending, LOGIN_S)
        resp.append_header("Set-Cookie", _cookie("", 0))
        try:
            token = self._token(req, pending)
            Api(self._api, req.env, token).get("/registry/partition-strategies")
        except (ProviderFailed, ApiProblem) as ex:
            raise falcon.HTTPForbidden(title="The login failed", description=str(ex)) from ex
        req.context.session = Session.new(token)
        req.context.session_changes = {"csrf": None}
        # A redirect would still count as the provider's, and the browser would not send the new session with it.
        resp.content_type = _HTML
        following = pending.next if pending else local_path("")
        resp.text = render("continue.html.jinja", {"asset": asset_url, "next": following})

    def _token(self, req: falcon.Request, pending: Pending | None) -> str:
        if pending is None or not secrets.compare_digest(pending.state, req.get_param("state") or ""):
            raise ProviderFailed("This login was not begun in this browser, or took too long. Begin again.")
        if error := req.get_param("error"):
            raise ProviderFailed(f"{self._provider.name}: {req.get_param('error_description') or error}")
        return self._provider.finish(_callback(req), req.query_string, pending)


def _callback(req: falcon.Request) -> str:
    return f"{'https' if is_secure(req) else 'http'}://{req.netloc}{CALLBACK}"


def _cookie(value: str, age_s: int) -> str:
    return f"{COOKIE}={value}; Path=/console/login; HttpOnly; SameSite=Lax; Secure; Max-Age={age_s}"


def _nonce(id_token: str) -> object:
    """The nonce in the payload of a token, whose signature the API checks where it takes that token."""
    import jwt  # noqa: PLC0415 - see Provider.finish

    try:
        return jwt.decode(id_token, options={"verify_signature": False}).get("nonce")
    except jwt.InvalidTokenError:
        return None
