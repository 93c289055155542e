"""Renders pages: Jinja templates that escape everything, with the filters and files that they share."""

import functools
import gzip
import hashlib
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
import orjson
from markupsafe import Markup

from rioni.console import charts, exact_json
from rioni.files import templates


# Files that pages load: style, scripts and vendored libraries, under addresses that change with their content.

TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


class Asset(NamedTuple):
    """A file as it is sent."""

    content_type: str
    content: bytes
    compressed: bytes
    digest: str


@functools.cache
def assets() -> Mapping[str, Asset]:
    """All files by their path below `static`."""
    folder = files("rioni.console").joinpath("static")
    found = {}
    for prefix, place in (("", folder), ("vendor/", folder.joinpath("vendor"))):
        for file in place.iterdir():
            kind = file.name.rpartition(".")[2]
            if kind in TYPES:
                content = file.read_bytes()
                digest = hashlib.sha256(content).hexdigest()[:16]
                found[prefix + file.name] = Asset(TYPES[kind], content, gzip.compress(content, 9, mtime=0), digest)
    return found


def asset_url(base_path: str, name: str) -> str:
    """The address of a file of a console that is served below a base path."""
    return f"{base_path}/console/static/{assets()[name].digest}/{name}"


# --- Renders pages: Jinja templates that escape everything, with the filters they share ---

NOTHING = "-"
SHORT = 80


@functools.cache
def environment() -> Any:
    """The templates; call it first on the hub, which imports them when a page is first asked for."""
    from jinja2 import PackageLoader, StrictUndefined  # noqa: PLC0415 - PERF: 40 ms of every start

    loaded = templates.environment(loader=PackageLoader("rioni.console", "templates"), undefined=StrictUndefined)
    loaded.filters |= {
        "number": number,
        "pretty": pretty,
        "seen": exact_json.seen,
        "short": short,
        "visible": visible,
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
    loaded.globals |= {"without": without, "create": create, "publish": publish}
    return loaded


def without(members: Mapping[str, Any], name: str) -> dict[str, Any]:
    """All members but one."""
    return {each: value for each, value in members.items() if each != name}


def render(template: str, base_path: str, data: Mapping[str, Any]) -> str:
    """A page; what takes longer than some milliseconds for a large one, and the first time for each template.

    Args:
        template: its name.
        base_path: the path below which the broker is served, empty for `/`; every absolute link begins with it.
        data: what the template shows.
    """
    addresses = {"base_path": base_path, "asset": functools.partial(asset_url, base_path)}
    text: str = environment().get_template(template).render(addresses, **data)
    return text


def url(base_path: str, path: str, as_of: str | None, /, **params: Any) -> str:
    """A link within the console below a base path, which keeps the moment that is shown."""
    given = {name: value for name, value in params.items() if value not in (None, "", False)}
    if as_of is not None:
        given["as_of"] = as_of
    return f"{base_path}/console{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")


def number(value: Any) -> str:
    """A number with separators; a dash if there is none."""
    if value is None:
        return NOTHING
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def pretty(value: Any) -> str:
    """JSON as it is read best."""
    if isinstance(value, str):
        try:
            return msgspec.json.format(value, indent=2)
        except msgspec.DecodeError:
            return str(value)
    return exact_json.encode(value, option=orjson.OPT_INDENT_2).decode()


def short(value: Any) -> str:
    """JSON in one line, cut if it is long."""
    text = NOTHING if value is None else value if isinstance(value, str) else exact_json.encode(value).decode()
    return text if len(text) <= SHORT else f"{text[:SHORT]}..."


def visible(text: str) -> str:
    """A text in which nothing is hidden or reorders others: such characters are escapes."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def time(text: str | None) -> Markup:
    """A time in UTC, or in the browser's zone if the user has chosen that; a script adds the other one as a hint."""
    return _time(text, Markup('<time datetime="{}">{} UTC</time>'))


def both_times(text: str | None) -> Markup:
    """A time in UTC, and next to it room in which a script writes that of the browser's zone."""
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


def create(event_type: Mapping[str, Any]) -> str:
    """The line for a shell that creates an event type, whose schema takes any JSON object, with the command line."""
    options = ["--owning-application", event_type["owning_application"], "--category", event_type["category"]]
    return shlex.join(["rioni", "event-types", "create", event_type["name"], *options])


def publish(event_type: str, event: Mapping[str, Any]) -> str:
    """The line for a shell that publishes an event with the command line."""
    return f"echo {shlex.quote(exact_json.encode(event).decode())} | {shlex.join(['rioni', 'publish', event_type])}"


def curl(origin: str, method: str, path: str, body: Any = None, *, token: bool) -> str:
    """The line for a shell that makes a request to the API.

    Args:
        origin: scheme and host of the broker, and the path below which it is served.
        method: the verb.
        path: with names quoted.
        body: sent as JSON; None for no body.
        token: whether the broker asks for one.
    """
    words = ["curl", *(() if method == "GET" else ("-X", method)), origin + path]
    if body is not None:
        words += ["-H", "Content-Type: application/json", "-d", exact_json.encode(body).decode()]
    return shlex.join(words) + (' -H "Authorization: Bearer $RIONI_TOKEN"' if token else "")
