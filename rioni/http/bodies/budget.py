"""Bounds the memory that request bodies take in a worker, in total and per client.

Received bytes of a body count, inflated, from their arrival until the request is answered; so a slow client is charged
for what it has sent, not for the length that it announces.
"""

from collections import defaultdict

import falcon

from rioni.domain.errors import Overloaded, TooManyStreams
from rioni.http.bodies.inflation import Inflater
from rioni.http.middleware.authentication import caller_of


WORKER_BYTES_MAX, CLIENT_BYTES_MAX = 200_000_000, 100_000_000
RETRY_AFTER_S = 1
LARGE_BYTES = 1_000_000
"""After bodies of this size memory is returned to the system."""


class BodyBudget:
    """The bytes that all requests of a worker hold now."""

    def __init__(self, worker_bytes_max: int = WORKER_BYTES_MAX, client_bytes_max: int = CLIENT_BYTES_MAX) -> None:
        self._worker_bytes_max, self._client_bytes_max = worker_bytes_max, client_bytes_max
        self._total = 0
        self._of_clients: defaultdict[str, int] = defaultdict(int)
        self._released_large = False
        self.inflater = Inflater()

    def reserve(self, client: str, size: int) -> None:
        """Count more bytes of a client.

        Raises:
            Overloaded: the worker holds too many bytes of all clients.
            TooManyStreams: it holds too many of this one.
        """
        if self._total + size > self._worker_bytes_max:
            raise Overloaded(
                f"This process already holds {self._total} bytes of request bodies, of at most "
                f"{self._worker_bytes_max}; try again later",
                RETRY_AFTER_S,
            )
        if (held := self._of_clients[client]) + size > self._client_bytes_max:
            raise TooManyBytes(held, self._client_bytes_max)
        self._total += size
        self._of_clients[client] += size

    def release(self, client: str, size: int) -> None:
        """Stop counting bytes that were reserved."""
        self._total -= size
        left = self._of_clients[client] - size
        if left:
            self._of_clients[client] = left
        else:
            del self._of_clients[client]
        self._released_large = self._released_large or size >= LARGE_BYTES

    def has_released_large(self) -> bool:
        """Whether a request with a large body has ended since the last call."""
        released, self._released_large = self._released_large, False
        return released

    @property
    def held(self) -> int:
        """Bytes of all requests."""
        return self._total


class TooManyBytes(TooManyStreams):
    """The worker holds too many bytes of a client."""

    retry_after_s = RETRY_AFTER_S

    def __init__(self, held: int, bytes_max: int) -> None:
        super().__init__(
            f"This process already holds {held} bytes of request bodies of this client, of at most {bytes_max}; send "
            "less at a time"
        )


def hold(req: falcon.Request, size: int) -> None:
    """Count received bytes of a request's body; raises what `BodyBudget.reserve` raises."""
    context = req.context
    budget: BodyBudget | None = getattr(context, "bodies", None)
    if budget is not None:
        client, held = getattr(context, "held", None) or (_client(req), 0)
        budget.reserve(client, size)
        context.held = client, held + size


def let_go(req: falcon.Request) -> None:
    """Stop counting the bytes of a request: it has been answered."""
    if (held := getattr(req.context, "held", None)) is not None:
        req.context.bodies.release(*held)
        req.context.held = None


def _client(req: falcon.Request) -> str:
    """The client to charge: the authenticated subject, otherwise the network address."""
    subject = caller_of(req).subject
    return f"{subject.realm} {subject.name}" if subject.realm else req.remote_addr or "-"
