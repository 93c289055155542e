"""Builds the chain of token sources from the settings."""

from collections.abc import Callable

from rioni.config.settings import Config
from rioni.domain.access.authentication import TokenPolicy, Tokens
from rioni.domain.errors import TokensUnavailable
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.thread_pool import ThreadPool
from rioni.storage.tokens import http_get
from rioni.storage.tokens.cached import CachedTokens
from rioni.storage.tokens.issuers import read_issuers
from rioni.storage.tokens.token_chain import CombinedTokens
from rioni.storage.tokens.tokeninfo import LocalAndRemote, TokenInfoService
from rioni.storage.tokens.tokens_file import TokensFile


def sources_of_tokens(
    config: Config,
    clock: Clock,
    policy: TokenPolicy,
    pool: ThreadPool,
    *,
    only_remote: Callable[[], bool],
    get: http_get.Get = http_get.get,
) -> Tokens:
    """Create the chain of all token sources, cheapest first; reads their files, but contacts no server yet.

    Args:
        config: the settings of the sources.
        clock: of this process.
        policy: determines the principal of a token.
        pool: the pool for reading files.
        only_remote: whether the feature `remote_tokeninfo` is on.
        get: how issuers and token info services are asked.

    Raises:
        TokensUnavailable: a file or a URL can't be used; the text says why.
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


def _service(setting: str, url: str | None, get: http_get.Get, clock: Clock) -> TokenInfoService | None:
    if url is None:
        return None
    if (reason := http_get.why_unusable(url)) is not None:
        raise TokensUnavailable(f"{setting} {reason}")
    return TokenInfoService(url, get, clock)
