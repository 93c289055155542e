"""Errors of the client.

```
ClientError
├── ConnectionFailed            no answer: the broker can't be reached, or the connection broke
│   └── TimedOut                no answer in time
├── UnexpectedAnswer            an answer that is not of this API, such as a page of a proxy
├── PublishingFailed            a batch of which events were not stored; has the result of each event
├── EventFailed                 an event of a producer that was not stored; has its result
├── EventsNotStored             events of a producer that failed and that the application did not examine
├── ProducerClosed              a producer takes no more events
└── Problem                     the broker refused the request, with a reason
    ├── BadRequest              400: can't be read
    ├── Unauthorized            401: no valid token
    ├── Forbidden               403: a right or scope is missing, or the application is blocked
    ├── NotFound                404
    ├── Conflict                409: the state of the resource excludes this
    ├── PreconditionFailed      412: changed by another client, or a stream's start is not available
    ├── TooLarge                413
    ├── Unprocessable           422: readable, but against a rule
    ├── TooManyRequests         429: a limit of this client
    └── ServerError             5xx
        └── Unavailable         503: the same request may succeed later
```
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from rioni.wire.events import ItemResult


class Tried(NamedTuple):
    """The number of attempts of a request before the client stopped trying, and the time since which it failed."""

    attempts: int
    since: datetime
    seconds: float

    def __str__(self) -> str:
        return f"tried {self.attempts} times in {self.seconds:.3g} s, since {self.since:%Y-%m-%dT%H:%M:%SZ}"


class ClientError(Exception):
    """Base of all errors of the client."""

    tried: Tried | None = None
    """The number of attempts of the request before the client stopped trying; None for one."""
    may_be_done: bool = False
    """Whether the broker may have processed an attempt before the one that has failed."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.tried is None else f"{text} ({self.tried})"


class ConnectionFailed(ClientError):
    """There was no answer; whether the request was processed is unknown, unless the connection could not be opened."""

    def __init__(self, message: str, *, sent: bool = True, temporary: bool = True) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether the request may have reached the broker."""
        self.temporary = temporary
        """Whether another attempt may succeed; not with a certificate that is not trusted, for instance."""


class TimedOut(ConnectionFailed):
    """There was no answer, or no result, in time."""


class UnexpectedAnswer(ClientError):
    """The answer is not one of this API."""


class Problem(ClientError):
    """The broker refused a request: a problem as in RFC 9457."""

    def __init__(self, status: int, members: Mapping[str, Any], *, request: str, retry_after_s: float | None) -> None:
        self.status = status
        self.title = str(members.get("title") or status)
        self.detail = str(members.get("detail") or "").strip()
        self.type: str | None = members.get("type")
        self.members = members
        """All members as they came, such as `oldest_available_offset` of a cursor that is not available."""
        self.request = request
        """Method and path."""
        self.retry_after_s = retry_after_s
        """Seconds that the broker asked to wait, if it did."""
        super().__init__(f"{request}: {status} {self.title}" + (f": {self.detail}" if self.detail else ""))


class BadRequest(Problem):
    """The broker can't read the request."""


class Unauthorized(Problem):
    """The request has no valid token."""


class Forbidden(Problem):
    """The client lacks a right or a scope, or is blocked."""


class NotFound(Problem):
    """There is no such resource."""


class Conflict(Problem):
    """The state of the resource excludes the request."""


class PreconditionFailed(Problem):
    """Another client changed the resource meanwhile, or a stream can't start at the place that was asked for."""


class TooLarge(Problem):
    """The request exceeds a size limit of the broker."""


class Unprocessable(Problem):
    """The request is against a rule."""


class TooManyRequests(Problem):
    """A limit of simultaneous use by this client is reached."""


class ServerError(Problem):
    """The broker failed."""


class Unavailable(ServerError):
    """The broker lacks a dependency or is overloaded; the same request may succeed later."""


class PublishingFailed(ClientError):
    """Some events of a batch were not stored."""

    def __init__(self, event_type: str, results: Sequence[ItemResult]) -> None:
        self.event_type = event_type
        self.results = results
        """One for each event, in the order of the batch."""
        failed = [result for result in results if result.publishing_status != "submitted"]
        self.failed = failed
        """The results of those that were not stored."""
        self.may_be_completed = any(result.step == "publishing" for result in results)
        """Whether the broker stores the missing events when the batch is sent again under its idempotency key."""
        # If no event is at fault, all of them may carry the reason.
        culprits = [result for result in failed if result.publishing_status == "failed"] or failed
        culprit = next((result for result in culprits if result.detail), None)
        reason = f": {culprit.step}: {culprit.detail}" if culprit else ""
        super().__init__(f"{len(failed)} of {len(results)} events were not stored in {event_type}{reason}")


class EventFailed(ClientError):
    """The broker refused an event, or could not store it."""

    def __init__(self, event_type: str, event: bytes, result: ItemResult) -> None:
        self.event_type, self.event, self.result = event_type, event, result
        self.step, self.detail = result.step, result.detail
        super().__init__(f"{result.step}: {result.detail or result.publishing_status}")


class EventsNotStored(ClientError):
    """Events that a producer took over were not stored, or maybe not, and the application was not informed yet."""

    def __init__(self, event_type: str, count: int, failures: Sequence[tuple[bytes, ClientError]]) -> None:
        self.event_type = event_type
        self.count = count
        self.failures = failures
        """Events as JSON and why they failed; not all if there are very many."""
        reason = f": {failures[0][1]}" if failures else ""
        super().__init__(f"{count} events were not stored in {event_type}{reason}")


class ProducerClosed(ClientError):
    """A producer takes no more events."""


_PROBLEMS: Mapping[int, type[Problem]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
    413: TooLarge,
    422: Unprocessable,
    429: TooManyRequests,
    503: Unavailable,
}
_SERVER_ERRORS = 500
DETAIL_CHARS = 500
"""Characters that an error shows of an answer that is no problem."""


def problem(status: int, members: Mapping[str, Any], *, request: str, retry_after_s: float | None) -> Problem:
    """The error for a status that is not one of success."""
    kind = _PROBLEMS.get(status, ServerError if status >= _SERVER_ERRORS else Problem)
    return kind(status, members, request=request, retry_after_s=retry_after_s)


def members_of(text: str, otherwise: str) -> Mapping[str, Any]:
    """The members of a problem; a title and the beginning of the text if an answer is none, such as a proxy's page."""
    try:
        members: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {"title": otherwise, "detail": text[:DETAIL_CHARS]}
    return members
