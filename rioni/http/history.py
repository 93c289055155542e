"""Parses what requests for history have in common: rights, times, positions."""

import re

import falcon

from rioni.domain.errors import Invalid, Malformed
from rioni.domain.timestamps import LAST_MS, beyond_millisecond, parsed_ms, rfc3339
from rioni.http.caller import subject_of
from rioni.http.dependencies import Dependencies
from rioni.projections.queries import positions
from rioni.projections.queries.past import Moment


AS_OF = "as_of"
LOG_POSITION = "Log-Position"
_POSITION = re.compile(r"[0-9]{1,18}")


def check_history(req: falcon.Request, dependencies: Dependencies) -> None:
    """Check that the caller may read all that ever happened.

    Raises:
        AdminOnly: it is no administrator, reader or auditor of the broker.
    """
    dependencies.registry.refresh()
    dependencies.access.history(subject_of(req))


def time_from(text: str, name: str) -> str:
    """A time as the log writes it, rounded up to a millisecond.

    Raises:
        Malformed: it is not RFC 3339.
    """
    return rfc3339(min(_milliseconds(text, name) + beyond_millisecond(text), LAST_MS))


def since_ms(req: falcon.Request) -> int:
    """The parameter `since` in milliseconds; 0 if it is absent.

    Raises:
        Malformed: it is not RFC 3339.
    """
    text = req.get_param("since")
    return 0 if text is None else _milliseconds(text, "since")


def as_of(req: falcon.Request, resp: falcon.Response, dependencies: Dependencies) -> Moment | None:
    """The moment that a request asks about, named in the answer's header; None for now.

    Raises:
        Malformed: it is neither a position nor a time.
        Invalid: the log does not reach there.
    """
    text = req.get_param(AS_OF)
    if text is None:
        return None
    position, head = dependencies.query(positions.resolved, _moment(text, dependencies))
    if position > head:
        raise Invalid(f"{AS_OF}: the log ends at position {head}")
    if position < 1:
        raise Invalid(f"{AS_OF}: '{text}' is before the first entry of the log; it has the positions 1 to {head}")
    resp.set_header(LOG_POSITION, str(position))
    dependencies.registry.refresh()
    return Moment(position, deleted=dependencies.access.may(subject_of(req), "HISTORY"))


def _moment(text: str, dependencies: Dependencies) -> int | str:
    """A position, or a time as the log writes it."""
    if _POSITION.fullmatch(text):
        return int(text)
    time, now = rfc3339(_milliseconds(text, AS_OF)), rfc3339(dependencies.clock.now_ms())
    # The clock may be behind the log.
    if time > now and time > (now := max(now, dependencies.query(positions.last_recorded_at))):
        raise Invalid(f"{AS_OF}: '{text}' is in the future; the broker's time is {now}")
    return time


def _milliseconds(text: str, name: str) -> int:
    milliseconds = parsed_ms(text)
    if milliseconds is None:
        wanted = "a position or an RFC 3339 time" if name == AS_OF else "an RFC 3339 time"
        raise Malformed(f"{name}: '{text}' is not {wanted} such as 2026-01-31T12:00:00Z; write + as %2B")
    return min(max(0, milliseconds), LAST_MS)
