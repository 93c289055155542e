"""Caches token lookups, and limits concurrent lookups."""

import hashlib
import threading
from collections import OrderedDict
from typing import NamedTuple

from rioni.domain.access.authentication import TokenInfo, Tokens
from rioni.domain.errors import TokensUnavailable
from rioni.domain.ports.clock import Clock


ACCEPTED_S = 30.0
"""How long an accepted token is cached. With streams rechecking every 30 s, none outlives its token by a minute."""
REFUSED_S = 10.0
"""How long a rejected token is cached: repeated requests with it do not query the source."""
ACCEPTED_MAX = 10_000
REFUSED_MAX = 1_000
"""Separate from the accepted ones, which a flood of bad tokens must not evict."""
QUESTIONS_MAX = 16
WAITING_MAX = 1_000
"""Maximum number of requests waiting for a lookup; further ones are rejected at once."""
WAIT_S = 5.0
"""How long a request waits to start a lookup."""


class _Answer(NamedTuple):
    info: TokenInfo | None
    until_s: float


class CachedTokens:
    """Caches the answers of a source, by the hashes of the tokens."""

    def __init__(self, source: Tokens, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._turn = threading.BoundedSemaphore(QUESTIONS_MAX)
        self._waiting = 0
        self._lock = threading.Lock()
        self._accepted: OrderedDict[bytes, _Answer] = OrderedDict()
        self._refused: OrderedDict[bytes, _Answer] = OrderedDict()

    def inspect(self, token: str) -> TokenInfo | None:
        """See the port."""
        key = hashlib.sha256(token.encode()).digest()
        if (answer := self._remembered(key)) is not None:
            return answer.info
        self._take_turn()
        try:
            # Many requests with the same token may have waited for one answer.
            answer = self._remembered(key) or self._fetch(key, token)
        finally:
            self._turn.release()
        return answer.info

    def _take_turn(self) -> None:
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

    def _remembered(self, key: bytes) -> _Answer | None:
        answer = self._accepted.get(key) or self._refused.get(key)
        if answer is None or self._clock.monotonic() >= answer.until_s:
            return None
        if answer.info is not None and _is_over(answer.info, self._clock):
            return _Answer(None, answer.until_s)
        return answer

    def _fetch(self, key: bytes, token: str) -> _Answer:
        info = self._source.inspect(token)
        now_s = self._clock.monotonic()
        with self._lock:
            self._accepted.pop(key, None)
            self._refused.pop(key, None)
            if info is None or _is_over(info, self._clock):
                answer = self._refused[key] = _Answer(None, now_s + REFUSED_S)
                if len(self._refused) > REFUSED_MAX:
                    self._refused.popitem(last=False)
            else:
                answer = self._accepted[key] = _Answer(info, now_s + ACCEPTED_S)
                if len(self._accepted) > ACCEPTED_MAX:
                    self._accepted.popitem(last=False)
        return answer


def _is_over(info: TokenInfo, clock: Clock) -> bool:
    return info.expires_at_ms is not None and clock.now_ms() >= info.expires_at_ms
