"""Chain of token sources, queried in order."""

from collections.abc import Sequence

from rioni.domain.authentication import TokenInfo, Tokens
from rioni.domain.errors import TokensUnavailable


class CombinedTokens:
    """Accepts what any of its sources accepts; the first one that knows a token determines its principal."""

    def __init__(self, sources: Sequence[Tokens]) -> None:
        self._sources = sources

    def inspect(self, token: str) -> TokenInfo | None:
        """See the port; unavailable where a source that might know the token can't be asked."""
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
