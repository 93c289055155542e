"""Errors that the broker answers with; `rioni.http.problems` maps them to HTTP statuses.

`docs/layout.md` shows the tree of classes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType


VIOLATIONS_MAX = 100
"""How many violations an error reports; a body may hold thousands."""


class RioniError(Exception):
    """The root of every error that is an answer; `str(error)` is the problem's detail."""

    retry_after_s: int | None = None
    """Seconds after which the client may retry, for the header Retry-After; None if unknown."""


class Malformed(RioniError):
    """The request can't be read."""


class MissingFields(Malformed):
    """Members of a body other than an event type or a subscription are missing (reference common#problem-body).

    Args:
        violations: pairs of a member and a message.
    """

    def __init__(self, violations: Sequence[tuple[str, str]]) -> None:
        self.violations = tuple(violations)
        super().__init__("; ".join(f"{path} {message}" for path, message in violations))


class Invalid(RioniError):
    """The request can be read but is against a rule."""


class InvalidFields(Invalid):
    """Fields of a body break their constraints (reference common#problem-body).

    Args:
        violations: pairs of a snake_case path such as `options.retention_time` and a message.
    """

    def __init__(self, violations: Sequence[tuple[str, str]]) -> None:
        self.violations = tuple(violations)
        super().__init__("".join(f'Field "{path}" {message}\n' for path, message in violations))

    @classmethod
    def check(cls, violations: Iterable[tuple[str, str]]) -> None:
        """Raise the first `VIOLATIONS_MAX` violations, if there are any; further ones are not computed."""
        if found := [*islice(violations, VIOLATIONS_MAX)]:
            raise cls(found)


class IdempotencyKeyReused(Invalid):
    """Another batch was stored under the same idempotency key."""

    def __init__(self) -> None:
        super().__init__(
            "Idempotency-Key: another batch was stored under this key. Repeat that batch as it was, or give this one a "
            "key of its own"
        )


class InvalidCursor(Invalid):
    """A cursor is malformed or names a partition that does not exist (reference cursors#available-positions)."""


BEYOND_END = (
    "The partition ends before that, at {end}: was the broker restored from a backup, or the event type created again?"
)


class UnavailableCursor(InvalidCursor):
    """A cursor's position is not readable: expired, or not yet written.

    Args:
        event_type: the event type of the cursor.
        partition: the partition of the cursor.
        offset: the offset of the cursor, its position alone.
        available: the members of the response that describe the readable range, if it is known.
        end: the last offset of the partition, if the position is not written yet.
    """

    def __init__(
        self,
        event_type: str,
        partition: str,
        offset: str,
        available: Mapping[str, str] = MappingProxyType({}),
        end: str | None = None,
    ) -> None:
        self.event_type, self.partition, self.offset = event_type, partition, offset
        self.available = available
        super().__init__(
            f"offset {offset} for partition {partition} event type {event_type} is unavailable as "
            "retention time of data elapsed. PATCH partition offset with valid and available offset"
            + (f". {BEYOND_END.format(end=end)}" if end is not None else "")
        )


class Unauthenticated(RioniError):
    """The request has no valid token.

    Args:
        refused: why the token is not accepted; empty if there is none.
    """

    def __init__(self, refused: str = "") -> None:
        self.refused = refused
        required = "Full authentication is required to access this resource"
        super().__init__(f"{required}: {refused}" if refused else required)


class InsufficientToken(RioniError):
    """The token is valid, but does not suffice for this request."""


class InsufficientScope(InsufficientToken):
    """The token lacks a scope.

    Args:
        scope: the missing one.
        held: the scopes that it has.
    """

    def __init__(self, scope: str, held: Collection[str]) -> None:
        self.scope = scope
        self.held = frozenset(held)
        has = ", ".join(sorted(held)[:SCOPES_SHOWN_MAX])[:SCOPES_CHARACTERS_MAX] or "none"
        super().__init__(f"Insufficient scope for this resource: needs scope {scope}; the token has {has}")


class InsufficientRealm(InsufficientToken):
    """The token's realm is not accepted."""

    def __init__(self) -> None:
        super().__init__("Insufficient realms for this resource")


class CrossSite(RioniError):
    """A browser sends the request for a web page of another site, and that site's origin is not listed.

    Args:
        sender: the origin of the request, as the browser states it.
    """

    def __init__(self, sender: str) -> None:
        super().__init__(
            f"A browser sent this request for a web page of another site ({sender}), which is not allowed to do this. "
            "If the broker shall trust that site, add its origin (scheme://host:port) to the setting allowed_origins"
        )


class ForeignHost(RioniError):
    """The header `Host` names none of this broker's hosts: a web page may have rebound its own name (DNS rebinding).

    Args:
        host: the header.
    """

    def __init__(self, host: str) -> None:
        super().__init__(
            f"This broker does not answer to the host name '{host}'. Use localhost or 127.0.0.1, or add the name to "
            "the setting allowed_hosts"
        )


class AccessDenied(RioniError):
    """The subject lacks the right; the detail names operation and resource.

    Args:
        operation: READ, WRITE, ADMIN or VIEW.
        resource: `event-type:<name>`, `subscription:<id>`, ...
        reason: appended to the detail.
    """

    def __init__(self, operation: str, resource: str, reason: str = "") -> None:
        self.operation, self.resource, self.reason = operation, resource, reason
        because = f"; Reason : {reason}" if reason else ""
        super().__init__(f"Access on {operation} {resource} denied{because}")


class AdminOnly(RioniError):
    """Settings and storages are restricted to the broker's administrators."""


class Blocked(RioniError):
    """Application, event type or subscription is on the blacklist."""


class NotFound(RioniError):
    """The resource does not exist."""


class EventTypeNotFound(NotFound):
    """No event type has this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f'EventType "{name}" does not exist.')


class SubscriptionNotFound(NotFound):
    """No subscription has this id."""

    def __init__(self, subscription_id: str) -> None:
        self.subscription_id = subscription_id
        super().__init__(f'Subscription with id "{subscription_id}" does not exist')


class InvalidStartCursor(RioniError):
    """A low-level stream can't begin at the requested cursor; the cause, if there is one, has details."""


class InUse(RioniError):
    """The resource is in use, so it can't be deleted."""


class PreconditionFailed(RioniError):
    """The resource was modified since the client read it."""


class NotAcceptable(RioniError):
    """The accepted media type, or the content encoding of the request, is not supported here."""


class UnsupportedMediaType(RioniError):
    """The media type of the request's body is not supported."""


class Conflict(RioniError):
    """The resource is in a state that excludes this."""


class ConcurrentChange(Conflict):
    """The stream has grown since it was loaded: the command may be retried."""


class FeatureDisabled(RioniError):
    """A feature is switched off."""


class TooLarge(RioniError):
    """A limit on the size of the request is exceeded; the detail names the limit."""


class RequestTimeout(RioniError):
    """The request arrives too slowly; the detail contains advice."""


class FilterTooSlow(Invalid):
    """A filter exceeded its time limit for an event."""

    def __init__(self) -> None:
        super().__init__(
            "The filter of the subscription took more than 5 ms for one event. Create the subscription anew with a "
            "filter of fewer operators, or one that asks for smaller members of the event"
        )


class TooManyStreams(RioniError):
    """A limit on simultaneous use is exceeded; the detail names the limit."""


class QuotaExceeded(RioniError):
    """The client has used up a quota; nothing was done.

    Args:
        detail: names the quota.
        quotas: the names of all quotas that the request exceeds.
        retry_after_s: seconds after which to retry.
    """

    def __init__(self, detail: str, quotas: Sequence[str], retry_after_s: int) -> None:
        self.quotas, self.retry_after_s = tuple(quotas), retry_after_s
        super().__init__(detail)


SCOPES_SHOWN_MAX = 20
SCOPES_CHARACTERS_MAX = 1_000
RETRY_AFTER_S = 2
"""Default of Retry-After: in an outage queues fill up, and clients are to go on soon after its end."""


class Unavailable(RioniError):
    """A dependency is unavailable, or timed out: the same request may succeed later."""


class Overloaded(Unavailable):
    """Rejected because of overload before anything was done.

    Args:
        detail: a description of the overload.
        retry_after_s: seconds after which to retry.
    """

    def __init__(self, detail: str, retry_after_s: int = RETRY_AFTER_S) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(detail)


class ReadOnly(Unavailable):
    """The feature `disable_db_write_operations` is on."""

    def __init__(self) -> None:
        super().__init__("Database is currently in read-only mode")


class TokensUnavailable(Unavailable):
    """Token sources are unavailable; the text never contains anything of the token."""

    retry_after_s = RETRY_AFTER_S


class OutcomeUnknown(Unavailable):
    """The outcome of a write is unknown: no answer came in time."""


class OutcomeNotKnownYet(Unavailable):
    """The outcome of an earlier attempt is not known yet; each retry checks again."""

    retry_after_s = 1


class CommitOutcomeUnknown(OutcomeUnknown):
    """The database connection failed during COMMIT; the outcome is not known yet."""

    def __init__(self) -> None:
        super().__init__(
            "The outcome is unknown: the database failed during commit. Check whether the change was made before "
            "retrying."
        )


class TransactionConflict(Unavailable):
    """The database rolled back a transaction because of a conflict; it may be retried at once."""

    retry_after_s = 1

    def __init__(self) -> None:
        super().__init__("Transaction conflict; nothing was written. Try again later.")


class PartiallyStored(Unavailable):
    """Some partitions of a batch were not written, or their outcome is unknown.

    Args:
        failed: the reason for each partition of the batch that was not written, or is unknown: `internal error`,
            `timed out`, `interrupted` or `outcome unknown`. All others are written durably.
    """

    def __init__(self, failed: Mapping[int, str]) -> None:
        self.failed = failed
        reasons = ", ".join(f"{partition}: {reason}" for partition, reason in sorted(failed.items()))
        super().__init__(f"Some events may not have been stored, by partition: {reasons}")


class TopicClosed(Unavailable):
    """The topic rejects appends: the event type continues in another timeline.

    Args:
        topic: the topic.
        stored: for each partition of the batch, how many of its first events were durably written before the topic was
            closed; empty if the batch has a claim or ids.
    """

    def __init__(self, topic: str, stored: Mapping[int, int] = MappingProxyType({})) -> None:
        self.stored = stored
        super().__init__(f"The topic {topic} is closed. Retry: the event type continues in a new timeline.")
