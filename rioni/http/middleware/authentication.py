"""Authenticates every request, and rechecks the tokens of streams periodically (reference common#modes)."""

import re
from functools import lru_cache
from typing import Any

import falcon

from rioni.domain.access.authentication import UID_SCOPE, Mode, TokenInfo, TokenPolicy, Tokens
from rioni.domain.errors import InsufficientToken, TokensUnavailable, Unauthenticated
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.thread_pool import CLIENT
from rioni.http.caller import ANYBODY, Caller, client_key


PUBLIC = frozenset(("/health", "/livez", "/readyz", "/docs", "/openapi.json"))
"""The paths that need no token, in any mode: that of the contract, those of probes, and the API description, so that
browsers can show it."""
BEARER = re.compile(r"Bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
TOKEN_CHARACTERS_MAX = 16_384
MALFORMED = (
    f"the header Authorization is not `Bearer`, a space and a token of at most {TOKEN_CHARACTERS_MAX:,} characters"
)
OVER = "the token has expired"
UNKNOWN = "the token is not one that this broker accepts"
RECHECK_S = 30.0
"""Interval at which a stream rechecks its token: including caches, a revoked token ends its streams within 60 s."""

SCOPES_KEPT_MAX = 1_024
"""More than there are routes and methods; clients may invent methods."""

EVENT_TYPE_WRITE = "nakadi.event_type.write"
CONFIG_WRITE = "nakadi.config.write"
STREAM_WRITE = "nakadi.event_stream.write"
STREAM_READ = "nakadi.event_stream.read"
SCOPES: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("POST", re.compile(r"/event-types/{name}/(events|deleted-events)"), STREAM_WRITE),
    ("POST", re.compile(r"/subscriptions/{subscription_id}/dead-letters/redrive"), STREAM_WRITE),
    ("GET", re.compile(r"/event-types/{name}/(events|partitions|partitions/{partition})"), STREAM_READ),
    ("GET POST", re.compile(r"/event-types/{name}/(cursor-distances|shifted-cursors|cursors-lag)"), STREAM_READ),
    ("GET POST PUT PATCH DELETE", re.compile(r"/subscriptions(/.*)?"), STREAM_READ),
    ("DELETE", re.compile(r"/event-types/{name}"), CONFIG_WRITE),
    ("POST PUT", re.compile(r"/event-types(/.*)?"), EVENT_TYPE_WRITE),
)
"""Methods and templates of routes with the scope that mode `full` requires.

The first row that matches counts, `uid` is for the rest.
"""


@lru_cache(SCOPES_KEPT_MAX)
def scope_of(method: str, template: str) -> str:
    """The scope that mode `full` requires; HEAD needs that of GET."""
    method = "GET" if method == "HEAD" else method
    return next(
        (scope for methods, pattern, scope in SCOPES if method in methods.split() and pattern.fullmatch(template)),
        UID_SCOPE,
    )


class _TokenCaller(Caller):
    """The subject authenticated by a token."""

    def __init__(self, token: str, info: TokenInfo, authentication: "Authentication") -> None:
        super().__init__(authentication.policy.subject(info))
        self._token, self._info, self._authentication = token, info, authentication
        self._scope: str | None = None
        self._recheck_at_s = authentication.clock.monotonic() + RECHECK_S

    def check(self, scope: str) -> None:
        self._scope = scope
        self._authentication.policy.check(self._info, scope)

    def is_expired(self) -> bool:
        clock, end_ms = self._authentication.clock, self._info.expires_at_ms
        if end_ms is not None and clock.now_ms() >= end_ms:
            return True
        if clock.monotonic() < self._recheck_at_s:
            return False
        self._recheck_at_s = clock.monotonic() + RECHECK_S
        try:
            info = self._authentication.tokens.inspect(self._token)
            if info is None or self._authentication.policy.subject(info) != self.subject:
                return True
            self._info = info
            if self._scope is not None:
                self._authentication.policy.check(info, self._scope)
        except TokensUnavailable:
            return end_ms is None
        except InsufficientToken:
            return True
        return False


class Authentication:
    """Determines the caller of a request."""

    def __init__(self, policy: TokenPolicy, tokens: Tokens, clock: Clock) -> None:
        self.policy = policy
        self.tokens = tokens
        self.clock = clock

    def caller(self, authorization: str | None) -> Caller:
        """Authenticate the header `Authorization`.

        Raises:
            Unauthenticated: it holds no token, or an invalid one; the text says which.
            TokensUnavailable: no token source is available.
        """
        if self.policy.mode is Mode.OFF:
            return ANYBODY
        if authorization is None:
            raise Unauthenticated
        found = BEARER.fullmatch(authorization)
        if found is None or len(found[1]) > TOKEN_CHARACTERS_MAX:
            raise Unauthenticated(MALFORMED)
        info = self.tokens.inspect(found[1])
        if info is None:
            raise Unauthenticated(OVER if self.tokens.is_over(found[1]) else UNKNOWN)
        return _TokenCaller(found[1], info, self)


class AuthenticationMiddleware:
    """Authenticates requests to all resources but the public one."""

    def __init__(self, authentication: Authentication) -> None:
        self._authentication = authentication

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Authenticate before routing, so that clients without a token learn nothing about paths."""
        if req.path not in PUBLIC:
            req.context.caller = self._authentication.caller(req.get_header("Authorization"))
        CLIENT.set(client_key(req))

    def process_resource(self, req: falcon.Request, _resp: falcon.Response, _resource: Any, _params: Any) -> None:
        """Check the scope, once the route is known."""
        if req.path not in PUBLIC:
            req.context.caller.check(scope_of(req.method, req.uri_template or ""))
