"""Renders pages: Jinja templates that escape everything, with the filters they share."""

import functools
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import orjson
from markupsafe import Markup

from rioni.console import charts


NOTHING = "-"
SHORT = 80


@functools.cache
def environment() -> Any:
    """The templates; imported when a page is first asked for."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - PERF: 40 ms of every start

    loaded = Environment(
        loader=PackageLoader("rioni.console", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    loaded.filters |= {
        "number": number,
        "pretty": pretty,
        "short": short,
        "both_times": both_times,
        "clock": clock,
        "time": time,
        "segment": lambda text: quote(str(text), safe=""),
        "amount": charts.amount,
        "drawing": charts.drawing,
        "last_value": charts.last,
        "line_names": charts.line_names,
        "peak": charts.peak,
        "sparkline": charts.sparkline,
    }
    loaded.globals["without"] = without
    return loaded


def without(members: Mapping[str, Any], name: str) -> dict[str, Any]:
    """All members but one."""
    return {each: value for each, value in members.items() if each != name}


def render(template: str, data: Mapping[str, Any]) -> str:
    """A page."""
    text: str = environment().get_template(template).render(data)
    return text


def url(path: str, as_of: str | None, /, **params: Any) -> str:
    """A link within the console, which keeps the moment that is shown."""
    given = {name: value for name, value in params.items() if value not in (None, "", False)}
    if as_of is not None:
        given["as_of"] = as_of
    return f"/console{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")


def number(value: Any) -> str:
    """A number with separators; a dash where there is none."""
    if value is None:
        return NOTHING
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def pretty(value: Any) -> str:
    """JSON as it is read best."""
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return str(value)
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def short(value: Any) -> str:
    """JSON in one line, cut where it is long."""
    text = NOTHING if value is None else value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= SHORT else f"{text[:SHORT]}..."


def time(text: str | None) -> Markup:
    """A time in UTC, or in the browser's zone where the user has chosen that; a script adds the other one as a hint."""
    return _time(text, Markup('<time datetime="{}">{} UTC</time>'))


def both_times(text: str | None) -> Markup:
    """A time in UTC, and beside it room in which a script writes that of the browser's zone."""
    return _time(text, Markup('<time datetime="{}" class="both">{} UTC <span class="local"></span></time>'))


def clock(text: str) -> Markup:
    """The hour and minute of a time, in UTC or in the browser's zone."""
    return Markup('<time datetime="{}" class="clock">{} UTC</time>').format(text, text[11:16])


def _time(text: str | None, markup: Markup) -> Markup:
    if not text:
        return Markup("-")
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        # Events without metadata of the broker may have anything there.
        return Markup("{}").format(short(text))
    return markup.format(moment.isoformat(), moment.strftime("%Y-%m-%d %H:%M:%S"))


def curl(origin: str, method: str, path: str, body: Any = None, *, token: bool) -> str:
    """The line for a shell that makes a request to the API.

    Args:
        origin: scheme and host of the broker.
        method: the verb.
        path: with names quoted.
        body: sent as JSON; None for no body.
        token: whether the broker asks for one.
    """
    words = ["curl", *(() if method == "GET" else ("-X", method)), origin + path]
    if body is not None:
        words += ["-H", "Content-Type: application/json", "-d", orjson.dumps(body).decode()]
    return shlex.join(words) + (' -H "Authorization: Bearer $RIONI_TOKEN"' if token else "")
