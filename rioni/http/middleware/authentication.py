"""Authenticates every request, and rechecks the tokens of streams periodically (reference common#modes)."""

import re
from functools import lru_cache
from typing import Any

import falcon

from rioni.domain.access.authorization import UID_SCOPE, Mode, TokenInfo, TokenPolicy, Tokens
from rioni.domain.errors import InsufficientToken, Malformed, TokensUnavailable, Unauthenticated
from rioni.domain.ports.host import CLIENT, Clock
from rioni.http.caller import ANYBODY, Caller, client_key
from rioni.http.streaming.server_sent_events import last_event, wants_events
from rioni.http.streaming.stream_tickets import PARAMETER, StreamTickets, Ticket


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
"""How many scopes are kept: more than there are routes and methods; clients may invent methods."""

EVENT_TYPE_WRITE = "nakadi.event_type.write"
CONFIG_WRITE = "nakadi.config.write"
STREAM_WRITE = "nakadi.event_stream.write"
STREAM_READ = "nakadi.event_stream.read"
SCOPES: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("POST", re.compile(r"/event-types/{name}/(events|deleted-events)"), STREAM_WRITE),
    ("POST", re.compile(r"/subscriptions/{subscription_id}/dead-letters/redrive"), STREAM_WRITE),
    ("GET", re.compile(r"/event-types/{name}/(events|partitions|partitions/{partition})"), STREAM_READ),
    ("GET POST", re.compile(r"/event-types/{name}/(cursor-distances|shifted-cursors|cursors-lag)"), STREAM_READ),
    ("POST", re.compile(r"/stream-tickets"), STREAM_READ),
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

    def has_scope(self, scope: str) -> bool:
        try:
            self._authentication.policy.check(self._info, scope)
        except InsufficientToken:
            return False
        return True

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


class _TicketCaller(_TokenCaller):
    """The subject for which a ticket was made."""

    def __init__(
        self, ticket: Ticket, tickets: StreamTickets, info: TokenInfo, authentication: "Authentication"
    ) -> None:
        super().__init__(ticket.token, info, authentication)
        self._ticket, self._tickets = ticket, tickets

    def resume(self) -> str:
        return self._tickets.resume(self._ticket)


class Authentication:
    """Determines the caller of a request."""

    def __init__(self, policy: TokenPolicy, tokens: Tokens, clock: Clock) -> None:
        self.policy = policy
        self.tokens = tokens
        self.clock = clock

    def caller(self, authorization: str | None) -> Caller:
        """Authenticate the header `Authorization`.

        Raises:
            Unauthenticated: it holds no token, or an invalid one; the message distinguishes these.
            TokensUnavailable: no token source is available.
        """
        if self.policy.mode is Mode.OFF:
            return ANYBODY
        if authorization is None:
            raise Unauthenticated
        token = bearer_token(authorization)
        if token is None:
            raise Unauthenticated(MALFORMED)
        return _TokenCaller(token, self._info(token), self)

    def holder(self, text: str, path: str, resume: str, tickets: StreamTickets) -> Caller:
        """Authenticate a ticket, and spend it unless it resumes its stream.

        Args:
            text: the ticket.
            path: the path of the stream.
            resume: the proof from the last id that the client has received; empty if it has none.
            tickets: the tickets of the installation.

        Raises:
            Unauthenticated: it opens no stream at the path now, or its token is no longer valid.
            TokensUnavailable: no token source is available.
            TooManyStreams: the client uses too many tickets.
            Unavailable: the use can't be noted.
        """
        if self.policy.mode is Mode.OFF:
            return ANYBODY
        ticket, resumes = tickets.open(text, path, resume)
        caller = _TicketCaller(ticket, tickets, self._info(ticket.token), self)
        if not resumes:
            tickets.spend(ticket, caller.subject.key)
        return caller

    def _info(self, token: str) -> TokenInfo:
        info = self.tokens.inspect(token)
        if info is None:
            raise Unauthenticated(OVER if self.tokens.is_over(token) else UNKNOWN)
        return info


def bearer_token(authorization: str | None) -> str | None:
    """The token in the header `Authorization`; None if it has none, or not in the form that it must have."""
    found = BEARER.fullmatch(authorization or "")
    return None if found is None or len(found[1]) > TOKEN_CHARACTERS_MAX else found[1]


class AuthenticationMiddleware:
    """Authenticates requests to all resources but the public one."""

    def __init__(self, authentication: Authentication, tickets: StreamTickets) -> None:
        self._authentication, self._tickets = authentication, tickets

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Authenticate before routing, so that clients without a token learn nothing about paths."""
        # Until its owner is known, a token counts for this address.
        CLIENT.set(client_key(req))
        if req.path not in PUBLIC:
            req.context.caller = caller = self._caller(req)
            if caller is not ANYBODY:
                CLIENT.set(client_key(req))

    def process_resource(self, req: falcon.Request, _resp: falcon.Response, _resource: Any, _params: Any) -> None:
        """Check the scope, once the route is known."""
        if req.path not in PUBLIC:
            req.context.caller.check(scope_of(req.method, req.uri_template or ""))

    def _caller(self, req: falcon.Request) -> Caller:
        authorization = req.env.get("HTTP_AUTHORIZATION")
        opens = authorization is None and req.method == "GET" and wants_events(req)
        ticket = req.get_param(PARAMETER) if opens else None
        if not ticket:
            return self._authentication.caller(authorization)
        try:
            resume = last_event(req).resume
        except Malformed:
            resume = ""
        return self._authentication.holder(ticket, req.path, resume, self._tickets)
