"""Tickets with which browsers open streams, and proofs of clients that come back to one."""

import hashlib
import hmac
import json
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter, deque
from collections.abc import Callable
from functools import cached_property
from urllib.parse import unquote_plus

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rioni.domain.access.authorization import Subject
from rioni.domain.errors import Invalid, TooManyStreams, Unauthenticated
from rioni.domain.ports.host import Clock, ConnectionQuota


# Tickets with which a browser opens a stream, since `EventSource` can't send a token (reference streams#tickets).

PARAMETER = "ticket"
LIFETIME_S = 60
"""Seconds within which a ticket opens its stream."""
RECONNECTS_S = 86_400
"""Seconds within which the stream of a ticket can be resumed; after that a page asks for another ticket."""
RESUME_S = 900
"""How old the id may be with which a stream is resumed: streams send new ones with each keep-alive."""
TICKET_CHARACTERS_MAX = 6_000
"""The maximum length of a ticket, so that lines with it pass proxies, which take 8 kB."""
OPENED_MAX = 500
"""How many tickets a client uses within their lifetime, on one worker."""
MARGIN_S = 60
"""Seconds by which the clocks of nodes may differ."""
REFUSED = "the ticket is not one for this stream, has expired, or was used before"

_NONCE_BYTES, _PROOF_CHARACTERS = 12, 32


class Ticket(msgspec.Struct, frozen=True, array_like=True):
    """The contents of a ticket, sealed so that only brokers of the installation can read it."""

    id: str
    path: str
    """The path of the stream; a ticket opens no other."""
    token: str
    """The token of the client that asked for the ticket: each use checks it again."""
    issued_at_ms: int


class StreamTickets:
    """Makes and checks tickets, the same on all workers and nodes."""

    def __init__(self, secret: Callable[[], bytes], slots: ConnectionQuota, clock: Clock) -> None:
        """Prepare.

        Args:
            secret: returns the secret of all workers and nodes; may block on the disk, and raise Unavailable.
            slots: remember the used tickets across all workers and nodes.
            clock: gives the time for their age.
        """
        self._secret, self._slots, self._clock = secret, slots, clock
        self._used: deque[tuple[float, str, str]] = deque()
        self._counts: Counter[str] = Counter()

    @cached_property
    def _key(self) -> bytes:
        return hmac.digest(self._secret(), b"tickets of rioni that open streams", "sha256")

    def issue(self, path: str, token: str) -> tuple[str, int]:
        """Make a ticket; return it, and the milliseconds since the epoch at which it expires.

        Args:
            path: the path of the stream.
            token: the token of the caller; empty while authentication is off.

        Raises:
            Invalid: path and token are too long together.
        """
        now_ms = self._clock.now_ms()
        nonce = os.urandom(_NONCE_BYTES)
        held = msgspec.msgpack.encode(Ticket(os.urandom(16).hex(), path, token, now_ms))
        ticket = urlsafe_b64encode(nonce + AESGCM(self._key).encrypt(nonce, held, None)).decode().rstrip("=")
        if len(ticket) > TICKET_CHARACTERS_MAX:
            raise Invalid(
                f"The path and your token are too long for a ticket: it would have {len(ticket)} characters, "
                f"and may have {TICKET_CHARACTERS_MAX}."
            )
        return ticket, now_ms + 1_000 * LIFETIME_S

    def open(self, text: str, path: str, resume: str) -> tuple[Ticket, bool]:
        """Read a ticket; return it, and whether it resumes its stream, so that it need not be spent.

        Args:
            text: the ticket.
            path: the path of the request.
            resume: the proof from the last id that the client has received; empty if it has none.

        Raises:
            Unauthenticated: it does not open this stream now.
        """
        ticket = self._unsealed(text)
        if ticket is None or ticket.path != path:
            raise Unauthenticated(REFUSED)
        age_ms = self._clock.now_ms() - ticket.issued_at_ms
        resumes = age_ms <= 1_000 * RECONNECTS_S and self._proves(resume, ticket)
        if not resumes and age_ms > 1_000 * LIFETIME_S:
            raise Unauthenticated(REFUSED)
        return ticket, resumes

    def spend(self, ticket: Ticket, client: str) -> None:
        """Note that a ticket was used.

        Args:
            ticket: opens a stream for the first time.
            client: the key of the ticket's client.

        Raises:
            Unauthenticated: it was used before, on any worker.
            TooManyStreams: the client uses too many tickets at once.
            Unavailable: the use can't be noted.
        """
        self._forget()
        if self._counts[client] >= OPENED_MAX:
            raise TooManyStreams(f"You have used {OPENED_MAX} tickets within {LIFETIME_S} s. Try again later.")
        self._counts[client] += 1
        self._used.append((self._clock.monotonic() + LIFETIME_S + MARGIN_S, ticket.id, client))
        if self._slots.acquire(f"ticket {ticket.id}", {f"ticket\n{ticket.id}": 1}):
            raise Unauthenticated(REFUSED)

    def resume(self, ticket: Ticket) -> str:
        """The part of ids that proves, with a ticket, that its client was sent the stream."""
        return self._resume(ticket, self._clock.now_ms())

    def _forget(self) -> None:
        """Forget tickets that have expired everywhere."""
        while self._used and self._used[0][0] < self._clock.monotonic():
            _, used, client = self._used.popleft()
            self._counts[client] -= 1
            if not self._counts[client]:
                del self._counts[client]
            self._slots.release(f"ticket {used}")

    def _unsealed(self, text: str) -> Ticket | None:
        if len(text) > TICKET_CHARACTERS_MAX:
            return None
        try:
            sealed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            held = AESGCM(self._key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None)
            return msgspec.msgpack.decode(held, type=Ticket)
        except (ValueError, InvalidTag, msgspec.DecodeError):
            return None

    def _proves(self, resume: str, ticket: Ticket) -> bool:
        written = resume.partition(".")[0]
        if not (written.isascii() and written.isdigit() and len(written) < 16):  # noqa: PLR2004
            return False
        if self._clock.now_ms() - int(written) > 1_000 * RESUME_S:
            return False
        return hmac.compare_digest(resume.encode(), self._resume(ticket, int(written)).encode())

    def _resume(self, ticket: Ticket, at_ms: int) -> str:
        proof = hmac.new(self._key, f"resume {ticket.id} {at_ms}".encode(), hashlib.sha256).hexdigest()
        return f"{at_ms}.{proof[:_PROOF_CHARACTERS]}"


def without_tickets(query: str) -> str:
    """A query string as logs may show it."""
    if PARAMETER not in unquote_plus(query):
        return query
    parts = [part.partition("=") for part in query.split("&")]
    return "&".join(
        f"{name}=-" if unquote_plus(name) == PARAMETER else f"{name}{mark}{value}" for name, mark, value in parts
    )


# --- Proves that a reconnecting client was sent what it returns, by whatever worker or node ---

PROOF_CHARACTERS = 32


class Resumption:
    """Makes and checks proofs, which bind a stream to its client.

    Stream ids alone prove nothing: `/stats` shows them to all readers of a subscription.
    """

    def __init__(self, secret: Callable[[], bytes]) -> None:
        """Prepare.

        Args:
            secret: returns the secret of all workers and nodes; may block on the disk, and raise Unavailable.
        """
        self._secret = secret

    @cached_property
    def _key(self) -> bytes:
        return hmac.digest(self._secret(), b"streams of rioni that are resumed", "sha256")

    def proof(self, name: str, subject: Subject) -> str:
        """The proof that a client was sent a stream.

        Args:
            name: the name of the stream, never reused.
            subject: the client.
        """
        bound = json.dumps([name, subject.key]).encode()
        return hmac.new(self._key, bound, hashlib.sha256).hexdigest()[:PROOF_CHARACTERS]

    def proves(self, proof: str, name: str, subject: Subject) -> bool:
        """Whether a proof is that of a client and a stream."""
        return hmac.compare_digest(proof.encode(), self.proof(name, subject).encode())
