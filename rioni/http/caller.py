"""The caller of a request: its subject, and whether its token suffices."""

import falcon

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

    def is_expired(self) -> bool:
        """Whether the token has expired or was revoked. Cheap, except for a periodic query of its source.

        An unavailable source changes nothing for a token with a known expiry.
        """
        return False


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
    """What the client is known by where something is counted for each client: its subject, otherwise its address."""
    subject = subject_of(req)
    # No name of a subject begins with a line feed.
    return f"\n{req.remote_addr}" if is_anonymous(subject) else subject.key
