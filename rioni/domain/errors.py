"""The errors that the broker answers with; what each one means to an HTTP client stands in `rioni.http.problems`.

RioniError
├── Malformed                   the request can't be read: not JSON, a wrong JSON type, an unknown literal
│   └── MissingFields           a small body lacks what it is about
├── Invalid                     readable, but against a rule
│   ├── InvalidFields           one line per field that breaks its constraint
│   ├── IdempotencyKeyReused    another batch was stored under the name that a client gives to this one
│   ├── FilterTooSlow           a filter took longer for an event than it may: its stream ends
│   ├── InvalidCursor           a cursor that names nothing readable
│   └── UnavailableCursor       a position that retention has removed, or that does not exist yet
├── Unauthenticated             there is no token, or none that anybody vouches for
├── InsufficientToken           the token does not suffice for any client's request of this kind
│   ├── InsufficientScope       it lacks a scope
│   └── InsufficientRealm       its realm is not let in
├── CrossSite                   a browser sends the request for a web page of another site
├── ForeignHost                 the request is for a host that is not this broker
├── AccessDenied                the subject may not do this
├── AdminOnly                   only an administrator of the broker may do this
├── Blocked                     application, event type or subscription is on the blacklist
├── NotFound                    the resource does not exist
│   ├── EventTypeNotFound
│   └── SubscriptionNotFound
├── InvalidStartCursor          a low-level stream can't begin where the client wants it to
├── InUse                       something else needs what is to be deleted
├── PreconditionFailed          the resource is no longer what the client takes it for
├── NotAcceptable               the request asks for a form that does not exist
├── UnsupportedMediaType        the request comes in a form that is not understood
├── Conflict                    the resource is in a state that excludes this
│   └── ConcurrentChange        the stream has grown since it was loaded
├── FeatureDisabled             a feature is switched off
├── TooLarge                    a limit on the size of the request is exceeded
├── RequestTimeout              the request takes too long to come
├── TooManyStreams              a limit on simultaneous use is exceeded
└── Unavailable                 a dependency, or time, is missing: the same request may succeed later
    ├── Overloaded              too much is asked for at once
    ├── ReadOnly                writing to the database is switched off
    ├── TokensUnavailable       nobody can be asked about tokens
    ├── TopicClosed             the timeline that is written to is being changed
    ├── OutcomeUnknown          what was to be written may have been written or not
    │   └── CommitOutcomeUnknowna change of the registry
    ├── TransactionConflict     a change of the registry got in the way of another one
    └── PartiallyStored         events of some partitions were not stored, or nobody knows whether they were
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType


class RioniError(Exception):
    """The root of every error that is an answer; `str(error)` is the problem's detail."""

    retry_after_s: int | None = None
    """In how many seconds the client may try again, for the header Retry-After; None where that can't be said."""


class Malformed(RioniError):
    """The request can't be read."""


class MissingFields(Malformed):
    """Members of a body that is no event type and no subscription are missing (reference common#problem-body).

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


class IdempotencyKeyReused(Invalid):
    """Another batch was stored under the name that a client gives to this one."""

    def __init__(self) -> None:
        super().__init__(
            "Idempotency-Key: another batch was stored under this key. Repeat that batch as it was, or give this one a "
            "key of its own"
        )


class InvalidCursor(Invalid):
    """A cursor is malformed or names a partition that does not exist (reference cursors#available-positions)."""


class UnavailableCursor(InvalidCursor):
    """A cursor's position is not readable: expired, or not yet written.

    Args:
        event_type: of the cursor.
        partition: of the cursor.
        offset: of the cursor, its position alone.
        available: the members of an answer that say what can be read, where that is known.
    """

    def __init__(
        self, event_type: str, partition: str, offset: str, available: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.event_type, self.partition, self.offset = event_type, partition, offset
        self.available = available
        super().__init__(
            f"offset {offset} for partition {partition} event type {event_type} is unavailable as "
            "retention time of data elapsed. PATCH partition offset with valid and available offset"
        )


class Unauthenticated(RioniError):
    """The request has no valid token.

    Args:
        refused: there is a token, but no source of tokens accepts it.
    """

    def __init__(self, *, refused: bool = False) -> None:
        self.refused = refused
        super().__init__("Full authentication is required to access this resource")


class InsufficientToken(RioniError):
    """The token is good, but not for this."""


class InsufficientScope(InsufficientToken):
    """The token lacks a scope.

    Args:
        scope: the one that it lacks.
    """

    def __init__(self, scope: str) -> None:
        self.scope = scope
        super().__init__("Insufficient scope for this resource")


class InsufficientRealm(InsufficientToken):
    """The token's realm is not accepted."""

    def __init__(self) -> None:
        super().__init__("Insufficient realms for this resource")


class CrossSite(RioniError):
    """A browser sends the request for a web page of another site, and that site's origin is not listed.

    Args:
        sender: what the browser says about where the request comes from.
    """

    def __init__(self, sender: str) -> None:
        super().__init__(
            f"A browser sent this request for a web page of another site ({sender}), which is not allowed to do this. "
            "If the broker shall trust that site, add its origin (scheme://host:port) to the setting allowed_origins"
        )


class ForeignHost(RioniError):
    """The header `Host` names no host that this broker is known by: a web page may have rebound its own name.

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
        reason: added when there is more to say.
    """

    def __init__(self, operation: str, resource: str, reason: str = "") -> None:
        self.operation, self.resource, self.reason = operation, resource, reason
        because = f"; Reason : {reason}" if reason else ""
        super().__init__(f"Access on {operation} {resource} denied{because}")


class AdminOnly(RioniError):
    """The settings and storages are for the broker's administrators."""


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
    """A low-level stream can't begin where the client wants it to; the cause, if there is one, says more."""


class InUse(RioniError):
    """Something else needs the resource, so that it can't be deleted."""


class PreconditionFailed(RioniError):
    """The resource is no longer what the client takes it for."""


class NotAcceptable(RioniError):
    """The request asks for, or comes in, a form that does not exist here."""


class UnsupportedMediaType(RioniError):
    """The request's body is of a type that is not understood here."""


class Conflict(RioniError):
    """The resource is in a state that excludes this."""


class ConcurrentChange(Conflict):
    """The stream has grown since it was loaded: the command may be tried again."""


class FeatureDisabled(RioniError):
    """A feature is switched off."""


class TooLarge(RioniError):
    """A limit on the size of the request is exceeded; the detail names the limit."""


class RequestTimeout(RioniError):
    """The request takes too long to come; the detail says what may be done."""


class FilterTooSlow(Invalid):
    """A filter took longer for an event than an accepted filter may."""

    def __init__(self) -> None:
        super().__init__(
            "The filter of the subscription took more than 5 ms for one event. Create the subscription anew with a "
            "filter of fewer operators, or one that asks for smaller members of the event"
        )


class TooManyStreams(RioniError):
    """A limit on simultaneous use is exceeded; the detail names the limit."""


RETRY_AFTER_S = 5
"""When clients are told to try again, where nothing better is known."""


class Unavailable(RioniError):
    """A dependency, or time, is missing: the same request may succeed later."""


class Overloaded(Unavailable):
    """Too much is asked for at once, so this was refused before anything was done.

    Args:
        detail: what is overloaded.
        retry_after_s: when to try again.
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
    """What was to be written may have been written or not: no answer came in time."""


class CommitOutcomeUnknown(OutcomeUnknown):
    """The database failed in COMMIT, and it is not known yet whether it has committed."""

    def __init__(self) -> None:
        super().__init__(
            "The outcome is unknown: the database failed during commit. Check whether the change was made before "
            "retrying."
        )


class TransactionConflict(Unavailable):
    """The database has undone what was written, for the sake of others; it may be tried again at once."""

    retry_after_s = 1

    def __init__(self) -> None:
        super().__init__("Transaction conflict; nothing was written. Try again later.")


class PartiallyStored(Unavailable):
    """Not all partitions of a batch were written for certain.

    Args:
        failed: for each partition of the batch that was not written, or of which nobody knows, why: `internal error`,
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
        stored: for each partition of the batch how many of its events, the first ones, came before the end all the
            same and are written durably; where a batch has a claim or ids, none.
    """

    def __init__(self, topic: str, stored: Mapping[int, int] = MappingProxyType({})) -> None:
        self.stored = stored
        super().__init__(f"The topic {topic} is closed. Retry: the event type continues in a new timeline.")
