"""The errors that the broker answers with; what each one means to an HTTP client stands in `rioni.http.problems`.

RioniError
├── Malformed                 the request can't be read: not JSON, a wrong JSON type, an unknown literal
├── Invalid                   readable, but against a rule
│   ├── InvalidFields         one line per field that breaks its constraint
│   ├── InvalidCursor         a cursor that names nothing readable
│   └── UnavailableCursor     a position that retention has removed, or that does not exist yet
├── Denied                    the subject may not do this
├── AdminOnly                 only an administrator of the broker may do this
├── Blocked                   application, event type or subscription is on the blacklist
├── NotFound                  the resource does not exist
│   ├── EventTypeNotFound
│   └── SubscriptionNotFound
├── UnusableStart             a low-level stream can't begin where the client wants it to
├── Outdated                  the resource is no longer what the client takes it for
├── NotAcceptable             the request asks for a form that does not exist
├── Conflict                  the resource is in a state that excludes this
│   └── ConcurrentChange      the stream has grown since it was loaded
├── Disabled                  a feature is switched off
├── TooLarge                  a limit on the size of the request is exceeded
├── TooMany                   a limit on simultaneous use is exceeded
└── Unavailable               a dependency, or time, is missing: the same request may succeed later
    └── ReadOnly              writing to the database is switched off
"""

from collections.abc import Sequence


class RioniError(Exception):
    """The root of every error that is an answer; `str(error)` is the problem's detail."""


class Malformed(RioniError):
    """The request can't be read."""


class Invalid(RioniError):
    """The request can be read but is against a rule."""


class InvalidFields(Invalid):
    """Fields of a body break their constraints (registry contract 1.2).

    Args:
        violations: pairs of a snake_case path such as `options.retention_time` and a message.
    """

    def __init__(self, violations: Sequence[tuple[str, str]]) -> None:
        self.violations = tuple(violations)
        super().__init__("".join(f'Field "{path}" {message}\n' for path, message in violations))


class InvalidCursor(Invalid):
    """A cursor is malformed or names a partition that does not exist (consumption contract 2.3)."""


class UnavailableCursor(InvalidCursor):
    """A cursor's position is not readable: expired, or not yet written."""

    def __init__(self, event_type: str, partition: str, offset: str) -> None:
        self.event_type, self.partition, self.offset = event_type, partition, offset
        super().__init__(
            f"offset {offset} for partition {partition} event type {event_type} is unavailable as "
            "retention time of data elapsed. PATCH partition offset with valid and available offset"
        )


class Denied(RioniError):
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


class UnusableStart(RioniError):
    """A low-level stream can't begin where the client wants it to."""


class Outdated(RioniError):
    """The resource is no longer what the client takes it for."""


class NotAcceptable(RioniError):
    """The request asks for, or comes in, a form that does not exist here."""


class Conflict(RioniError):
    """The resource is in a state that excludes this."""


class ConcurrentChange(Conflict):
    """The stream has grown since it was loaded: the command may be tried again."""


class Disabled(RioniError):
    """A feature is switched off."""


class TooLarge(RioniError):
    """A limit on the size of the request is exceeded; the detail names the limit."""


class TooMany(RioniError):
    """A limit on simultaneous use is exceeded; the detail names the limit."""


class Unavailable(RioniError):
    """A dependency, or time, is missing: the same request may succeed later."""


class ReadOnly(Unavailable):
    """The feature `disable_db_write_operations` is on."""

    def __init__(self) -> None:
        super().__init__("Database is currently in read-only mode")
