"""The sources of tokens that the settings name, asked one after the other, with a cache of their answers."""

import contextlib
import hashlib
import threading  # threads: greenlets only: events with deadlines, locks for changes in memory
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rioni.config.settings import Config
from rioni.domain.access.authorization import TokenInfo, TokenPolicy, Tokens
from rioni.domain.errors import TokensUnavailable
from rioni.domain.ports.host import Clock, ThreadPool
from rioni.storage.tokens import token_servers
from rioni.storage.tokens.issuers import read_issuers
from rioni.storage.tokens.token_servers import ByClient, LocalAndRemote, TokenInfoService
from rioni.storage.tokens.tokens_file import TokensFile


# --- Caches token lookups, and limits concurrent lookups ---

ACCEPTED_S = 30.0
"""How long an accepted token is cached. With streams rechecking every 30 s, none outlives its token by a minute."""
REFUSED_S = 10.0
"""How long a rejected token is cached: repeated requests with it do not query the source."""
ACCEPTED_MAX = 10_000
REFUSED_MAX = 1_000
"""Separate from the accepted ones, which a flood of bad tokens must not evict."""
QUESTIONS_MAX = 16
"""Lookups at a time for known tokens, which the source has accepted before, and as many for all others: strangers leave
room for known ones."""
QUESTIONS_OF_CLIENT_MAX = 8
"""Lookups at a time of one client for other than known tokens: it leaves room for other clients."""
WAITING_MAX = 1_000
"""Maximum number of requests of each kind waiting for a lookup; further ones are rejected at once."""
WAIT_S = 5.0
"""How long a request waits to start a lookup."""


class _Answer(NamedTuple):
    info: TokenInfo | None
    until_s: float
    over: bool = False


class _Turns:
    """Limits how many lookups run and wait at a time."""

    def __init__(self, at_a_time: int) -> None:
        self._turn = threading.BoundedSemaphore(at_a_time)
        self._waiting = 0

    def __enter__(self) -> None:
        if self._turn.acquire(blocking=False):
            return
        if self._waiting >= WAITING_MAX:
            raise TokensUnavailable("Too many tokens wait to be checked")
        self._waiting += 1
        try:
            if not self._turn.acquire(timeout=WAIT_S):
                raise TokensUnavailable("Too many tokens wait to be checked")
        finally:
            self._waiting -= 1

    def __exit__(self, *_: object) -> None:
        self._turn.release()


class CachedTokens:
    """Caches the answers of a source, by the hashes of the tokens."""

    def __init__(self, source: Tokens, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._of_known, self._of_others = _Turns(QUESTIONS_MAX), _Turns(QUESTIONS_MAX)
        self._of_client = ByClient(lambda: _Turns(QUESTIONS_OF_CLIENT_MAX))
        self._lock = threading.Lock()
        self._accepted: OrderedDict[bytes, _Answer] = OrderedDict()
        self._refused: OrderedDict[bytes, _Answer] = OrderedDict()

    def inspect(self, token: str) -> TokenInfo | None:
        """See the port."""
        key = hashlib.sha256(token.encode()).digest()
        if (answer := self._remembered(key)) is not None:
            return answer.info
        # Answers that are too old stay until others take their place: they show who is known.
        is_known = key in self._accepted
        first = contextlib.nullcontext() if is_known else self._of_client()
        with first, self._of_known if is_known else self._of_others:
            # Many requests with the same token may have waited for one answer.
            answer = self._remembered(key) or self._fetch(key, token)
        return answer.info

    def is_over(self, token: str) -> bool:
        """See the port."""
        answer = self._refused.get(key := hashlib.sha256(token.encode()).digest()) or self._accepted.get(key)
        if answer is not None and (answer.over or _is_over(answer.info, self._clock)):
            return True
        return self._source.is_over(token)

    def _remembered(self, key: bytes) -> _Answer | None:
        answer = self._accepted.get(key) or self._refused.get(key)
        if answer is None or self._clock.monotonic() >= answer.until_s:
            return None
        if answer.info is not None and _is_over(answer.info, self._clock):
            return _Answer(None, answer.until_s, over=True)
        return answer

    def _fetch(self, key: bytes, token: str) -> _Answer:
        info = self._source.inspect(token)
        now_s = self._clock.monotonic()
        with self._lock:
            before = self._accepted.pop(key, None) or self._refused.pop(key, None)
            if info is None or _is_over(info, self._clock):
                over = before is not None and (before.over or _is_over(before.info, self._clock))
                answer = self._refused[key] = _Answer(None, now_s + REFUSED_S, over=over or info is not None)
                if len(self._refused) > REFUSED_MAX:
                    self._refused.popitem(last=False)
            else:
                answer = self._accepted[key] = _Answer(info, now_s + ACCEPTED_S)
                if len(self._accepted) > ACCEPTED_MAX:
                    self._accepted.popitem(last=False)
        return answer


def _is_over(info: TokenInfo | None, clock: Clock) -> bool:
    return info is not None and info.expires_at_ms is not None and clock.now_ms() >= info.expires_at_ms


# --- Queries a chain of token sources in order ---


class CombinedTokens:
    """Accepts a token that any of its sources accepts; the first source that knows it determines its principal."""

    def __init__(self, sources: Sequence[Tokens]) -> None:
        self._sources = sources

    def inspect(self, token: str) -> TokenInfo | None:
        """See the port; raises TokensUnavailable if a source that might know the token is unreachable."""
        unavailable: TokensUnavailable | None = None
        for source in self._sources:
            try:
                if (info := source.inspect(token)) is not None:
                    return info
            except TokensUnavailable as ex:
                unavailable = ex
        if unavailable is not None:
            raise unavailable
        return None

    def is_over(self, token: str) -> bool:
        """See the port."""
        return any(source.is_over(token) for source in self._sources)


# --- Builds the chain of token sources from the settings ---


def sources_of_tokens(
    config: Config,
    clock: Clock,
    policy: TokenPolicy,
    pool: ThreadPool,
    *,
    only_remote: Callable[[], bool],
    get: token_servers.Get = token_servers.get,
) -> Tokens:
    """Create the chain of all token sources, cheapest first; reads their files, but contacts no server yet.

    Args:
        config: the settings of the sources.
        clock: the clock of this process.
        policy: determines the principal of a token.
        pool: the pool for reading files.
        only_remote: whether the feature `remote_tokeninfo` is on.
        get: how issuers and token info services are asked.

    Raises:
        TokensUnavailable: a file or a URL can't be used; the message says why.
    """
    sources: list[Tokens] = []
    if config.auth_tokens is not None:
        sources.append(TokensFile(config.auth_tokens, clock, pool))
    if config.auth_issuers is not None:
        # PERF: the import takes 70 ms of every start, for cryptography that most brokers never need.
        from rioni.storage.tokens.jwt_tokens import WebTokens  # noqa: PLC0415

        issuers = read_issuers(config.auth_issuers)
        sources.append(CachedTokens(WebTokens(issuers, get, clock, policy.attribute), clock))
    local = _service("auth_tokeninfo_local", config.auth_tokeninfo_local, get, clock)
    remote = _service("auth_tokeninfo_remote", config.auth_tokeninfo_remote, get, clock)
    if local is not None and remote is not None:
        sources.append(CachedTokens(LocalAndRemote(local, remote, only_remote), clock))
    elif (only := local or remote) is not None:
        sources.append(CachedTokens(only, clock))
    return CombinedTokens(sources)


def _service(setting: str, url: str | None, get: token_servers.Get, clock: Clock) -> TokenInfoService | None:
    if url is None:
        return None
    if (reason := token_servers.why_unusable(url)) is not None:
        raise TokensUnavailable(f"{setting} {reason}")
    return TokenInfoService(url, get, clock)
