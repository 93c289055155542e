"""The caller of a request: its subject, and whether its token suffices."""

import falcon

from rioni.domain.access.addresses import address_key
from rioni.domain.access.authorization import NOBODY, UNAUTHENTICATED, Subject, is_anonymous


class Caller:
    """The subject of a request, for the duration of the request."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    def check(self, scope: str) -> None:
        """Reject a token that does not suffice.

        Raises:
            InsufficientToken: it lacks the scope, or comes from the wrong realm.
        """

    def has_scope(self, scope: str) -> bool:  # noqa: ARG002
        """Whether the token would suffice for an operation with this scope; changes nothing."""
        return True

    def is_expired(self) -> bool:
        """Whether the token has expired or was revoked. Cheap, except for a periodic query of its source.

        An unavailable source changes nothing for a token with a known expiry.
        """
        return False

    def resume(self) -> str:
        """The proof for the ids of a stream that a ticket has opened; empty without a ticket."""
        return ""


ANYBODY = Caller(UNAUTHENTICATED)
"""The caller of every request while authentication is off."""

ANONYMOUS = Caller(NOBODY)
"""The caller of a request that was not authenticated, or not yet."""


def caller_of(req: falcon.Request) -> Caller:
    """The caller of the request."""
    caller: Caller = req.context.caller
    return caller


def subject_of(req: falcon.Request) -> Subject:
    """The subject of the request; anonymous while authentication is off."""
    return caller_of(req).subject


def client_key(req: falcon.Request) -> str:
    """The key under which something is counted for each client: that of its subject, otherwise its address."""
    subject = subject_of(req)
    return address_key(req.remote_addr) if is_anonymous(subject) else subject.key
