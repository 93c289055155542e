"""Parses what requests have in common: subject, context, parameters, and for history times and positions."""

import re
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode
from uuid import uuid4

import falcon

from rioni.commands.unit_of_work import CommandContext
from rioni.domain.access.authorization import Attribute
from rioni.domain.errors import Invalid, Malformed
from rioni.domain.events import Origin, client_text
from rioni.domain.ports.host import LOG_KEY
from rioni.domain.timestamps import LAST_MS, beyond_millisecond, parsed_ms, rfc3339
from rioni.http.caller import subject_of
from rioni.http.dependencies import Dependencies
from rioni.projections.queries import audit_log
from rioni.projections.queries.past import Moment


# --- Parses the common parts of requests: subject, context and parameters ---

T = TypeVar("T")

READ_AT_ONCE_BYTES_MAX = 16_384
"""PERF: reading this many bytes, and checking them, takes 2 ms at most; longer bodies are read in a thread."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
"""Digits that fit every database; Python's own conversion also accepts other scripts, and fails on long numbers."""


class OnceRequest(falcon.Request):
    """A request whose parameters for single values may be given only once."""

    __slots__ = ()

    def get_param(self, name: str, *args: Any, **options: Any) -> Any:
        """Get a parameter; raises Malformed if it occurs several times, where Falcon would take the last value."""
        self._check_once(name)
        return super().get_param(name, *args, **options)

    def get_param_as_bool(self, name: str, *args: Any, **options: Any) -> Any:
        """Get a boolean parameter; raises as `get_param`."""
        self._check_once(name)
        return super().get_param_as_bool(name, *args, **options)

    def _check_once(self, name: str) -> None:
        if isinstance(given := self.params.get(name), list):
            raise Malformed(f"{name} is given {len(given)} times: give it once")


def context_of(req: falcon.Request, dependencies: Dependencies) -> CommandContext:
    """The context of a command of this request: subject and time.

    Raises:
        QuotaExceeded: the client makes too many changes.
    """
    dependencies.quotas.charge_change(req)
    subject = subject_of(req)
    origin = Origin(
        actor=subject.name,
        client=client_text(req.remote_addr or "", req.user_agent or "", subject.realm),
        flow_id=req.context.flow_id,
        command_id=str(uuid4()),
        recorded_at=rfc3339(dependencies.clock.now_ms()),
    )
    return CommandContext(subject=subject, origin=origin)


def dispatch(command: Any, req: falcon.Request, dependencies: Dependencies) -> Any:
    """Run a command for the request, and notify all processes that the log has grown."""
    result = dependencies.bus.dispatch(command, context_of(req, dependencies))
    dependencies.signals.notify(LOG_KEY)
    return result


def parsed(parse: Callable[[bytes], T], body: bytes, dependencies: Dependencies) -> T:
    """Run a function of `rioni.http.bodies.parsing` on a body, in a thread if it is long; raises as it does."""
    return dependencies.compute_pool(parse, body) if len(body) > READ_AT_ONCE_BYTES_MAX else parse(body)


def media_type(header: str | None) -> str:
    """The media type that a header names, without its parameters."""
    return (header or "").partition(";")[0].strip().lower()


def integer(req: falcon.Request, name: str, default: int) -> int:
    """An integer of the query string.

    Raises:
        Malformed: it is not one.
    """
    text = req.get_param(name)
    if text is None:
        return default
    if _INTEGER.fullmatch(text) is None:
        raise Malformed(f"{name}: '{text}' is not an integer")
    return int(text)


def integer_within(req: falcon.Request, name: str, default: int, least: int, most: int) -> int:
    """An integer of the query string, from the least to the most that is allowed.

    Raises:
        Malformed: it is not one, or out of range.
    """
    value = integer(req, name, default)
    if not least <= value <= most:
        raise Malformed(f"'{name}' parameter should have value between {least} and {most}")
    return value


def listed(req: falcon.Request, name: str) -> list[str]:
    """The values of a parameter that may be given several times, and each time hold a list separated by commas."""
    return [part for text in req.get_param_as_list(name) or () for part in text.split(",") if part or not text]


def link_to(req: falcon.Request, *left_out: str, **given: str | int) -> str:
    """The request with other parameters, for links to other pages of a list.

    Args:
        req: its other parameters are kept, also those that are empty.
        left_out: the parameters that the link does not have.
        given: those that it has instead.
    """
    parameters = parse_qsl(req.query_string, keep_blank_values=True)
    kept = [(name, value) for name, value in parameters if name not in (*left_out, *given)]
    return f"{req.root_path}{req.path}?{urlencode([*kept, *given.items()])}"


def attribute(req: falcon.Request, name: str) -> Attribute | None:
    """An authorization attribute of the query string, `data_type:value`.

    Raises:
        Malformed: it does not have exactly one colon.
    """
    text = req.get_param(name)
    if text is None:
        return None
    data_type, colon, value = text.partition(":")
    if not colon or ":" in value:
        raise Malformed(f"{name}: '{text}' Authorization format is incorrect. Should be data_type:value")
    return Attribute(data_type, value)


# --- Parses the common parts of requests for history: rights, times, positions ---

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
    """The moment that a request names, returned in the answer's header; None for now.

    Raises:
        Malformed: it is neither a position nor a time.
        Invalid: the log does not reach there.
    """
    text = req.get_param(AS_OF)
    if text is None:
        return None
    position, head = dependencies.query(audit_log.resolved, _moment(text, dependencies))
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
    if time > now and time > (now := max(now, dependencies.query(audit_log.last_recorded_at))):
        raise Invalid(f"{AS_OF}: '{text}' is in the future; the broker's time is {now}")
    return time


def _milliseconds(text: str, name: str) -> int:
    milliseconds = parsed_ms(text)
    if milliseconds is None:
        wanted = "a position or an RFC 3339 time" if name == AS_OF else "an RFC 3339 time"
        raise Malformed(f"{name}: '{text}' is not {wanted} such as 2026-01-31T12:00:00Z; write + as %2B")
    return min(max(0, milliseconds), LAST_MS)
