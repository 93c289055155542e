"""Queries a chain of token sources in order."""

from collections.abc import Sequence

from rioni.domain.access.authentication import TokenInfo, Tokens
from rioni.domain.errors import TokensUnavailable


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
