"""Charts of the last hour: their content, from `GET /metrics/history`, and lines as SVG.

Pages are complete with these; scripts then replace each chart by one that can be explored and that goes on.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

import orjson
from markupsafe import Markup

from rioni.console.pages.page import Visit


STEP_S, SPARKLINE_STEP_S = 20, 120
SERIES_MAX, PARTITION_SERIES_MAX = 200, 1_000
PATH = "/metrics/history"
_WIDTH, _HEIGHT = 100, 100
"""The size of a drawing in its coordinates; it is stretched to its place."""
_HEADROOM = 1.1

RATE, BYTE_RATE, COUNT, DURATION = "rate", "byte rate", "count", "duration"
"""The kinds of values: events or bytes per second, a number, or seconds."""


class ChartLine(NamedTuple):
    """A series of the history, and its name in the chart."""

    name: str
    title: str
    value: str = ""
    """The value of its label; empty if it has none."""


class Chart(NamedTuple):
    """The content of a chart."""

    title: str
    unit: str
    lines: Sequence[ChartLine]


Values = Sequence[float | None]


def charts(visit: Visit, wanted: Iterable[Chart], **params: Any) -> Any:
    """The charts with their values, all of one request; or the problem of that.

    Args:
        visit: whose rights count.
        wanted: their contents.
        params: of the request, which also has a step.
    """
    params |= {"step": STEP_S, "limit": SERIES_MAX}
    found = visit.api.attempt(PATH, **params)
    if "problem" in found:
        return found
    known = {(each["name"], label_of(each)): from_zero(each) for each in found["series"]}
    query = urlencode({name: value for name, value in params.items() if value is not None}, doseq=True)
    return [
        {
            "title": chart.title,
            "unit": chart.unit,
            "query": query,
            "times": found["times"],
            "lines": [
                # A value without a series was zero all the time.
                line._asdict() | {"values": known.get((line.name, line.value)) or [0.0] * len(found["times"])}
                for line in chart.lines
            ],
        }
        for chart in wanted
    ]


def sparklines(visit: Visit, name: str, label: str, values: Sequence[str]) -> dict[str, Values]:
    """The series of a name for some values of a label; without those that were zero all the time, or not visible."""
    if not values or visit.as_of is not None:
        return {}
    asked = {label: ",".join(values), "step": SPARKLINE_STEP_S, "limit": len(values)}
    found = visit.api.attempt(PATH, name=name, **asked)
    return {label_of(each): from_zero(each) for each in found.get("series", ())}


def partition_sparklines(visit: Visit, subscription_id: str) -> dict[str, dict[str, Values]]:
    """The lags of the partitions of a subscription, by name, then by event type and partition with a slash between."""
    names = ("partition_lag_events", "partition_lag_seconds")
    found: dict[str, dict[str, Values]] = {name: {} for name in names}
    asked = {"subscription": subscription_id, "step": SPARKLINE_STEP_S, "limit": PARTITION_SERIES_MAX}
    for each in visit.api.attempt(PATH, name=",".join(names), **asked).get("series", ()):
        labels = each["labels"]
        found[each["name"]][f"{labels['event_type']}/{labels['partition']}"] = from_zero(each)
    return found


def from_zero(series: Mapping[str, Any]) -> Values:
    """The values of a series, which begins with its first one that is not zero; quantiles may be unknown."""
    values: list[float | None] = series["values"]
    if "quantile" in series["labels"]:
        return values
    begin = next((number for number, value in enumerate(values) if value is not None), len(values))
    return [0.0] * begin + values[begin:]


def label_of(series: Mapping[str, Any]) -> str:
    """The value of the label of a series; empty if it has none."""
    return next(iter(series["labels"].values()), "")


# --- Rendering ---


def last(values: Values | None) -> float | None:
    """The last value that there is."""
    return next((value for value in reversed(values or ()) if value is not None), None)


def most(lines: Iterable[Values]) -> float:
    """The largest value of all lines; 0 if there is none."""
    return max((value for values in lines for value in values if value is not None), default=0.0)


def polyline(values: Values, top: float, kind: str) -> Markup:
    """A line; it is interrupted if there are no values, and a value between two such places is a dot.

    Args:
        values: from left to right.
        top: the value at the upper edge.
        kind: the class that gives it a colour.
    """
    across = _WIDTH / max(1, len(values) - 1)
    down = _HEIGHT / (top * _HEADROOM or 1.0)
    parts: list[str] = []
    dots: list[str] = []
    before = None
    for number, (value, after) in enumerate(zip(values, [*values[1:], None], strict=True)):
        if value is not None:
            place = f"{number * across:.4g} {_HEIGHT - value * down:.4g}"
            if before is None and after is None:
                dots.append(f"M{place}h0")
            else:
                parts.append(f"{'M' if before is None else 'L'}{place}")
        before = value
    markup = Markup('<path class="{}" d="{}" vector-effect="non-scaling-stroke"/>')
    return Markup("").join(
        markup.format(name, "".join(drawn)) for name, drawn in ((kind, parts), (f"{kind} dot", dots)) if drawn
    )


def drawing(chart: Mapping[str, Any]) -> Markup:
    """The lines of a chart."""
    lines = [line["values"] for line in chart["lines"]]
    return _svg(lines, _spoken(chart["title"], lines[0], chart["unit"]))


def sparkline(values: Values, unit: str, title: str) -> Markup:
    """A small drawing of one line."""
    return _svg([values], _spoken(title, values, unit))


def line_names(chart: Mapping[str, Any]) -> str:
    """The names and values of the lines of a chart, as JSON for a script."""
    return orjson.dumps([{"name": line["name"], "value": line["value"]} for line in chart["lines"]]).decode()


def peak(chart: Mapping[str, Any]) -> str:
    """The largest value of a chart, for people."""
    return amount(most(line["values"] for line in chart["lines"]), chart["unit"])


def _spoken(title: str, values: Values, unit: str) -> str:
    return f"{title}, last hour: now {amount(last(values), unit)}, at most {amount(most([values]), unit)}"


def _svg(lines: Sequence[Values], label: str) -> Markup:
    """Lines over a common time, stretched to the place that they are in."""
    top = most(lines)
    paths = Markup("").join(polyline(values, top, f"line-{number}") for number, values in enumerate(lines))
    return Markup(
        '<svg role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none" focusable="false">{}</svg>'
    ).format(label, _WIDTH, _HEIGHT, paths)


def amount(value: float | None, unit: str) -> str:
    """A value for people: `1,230 /s`, `17`, `4 ms`."""
    if value is None:
        return "-"
    if unit == DURATION:
        return duration(value)
    if unit == BYTE_RATE:
        return f"{_scaled(value, ('B', 'kB', 'MB', 'GB'))}/s"
    digits = 0 if unit == COUNT or value >= 100 or value == int(value) else 1 if value >= 1 else 2  # noqa: PLR2004
    return f"{value:,.{digits}f}" + (" /s" if unit == RATE else "")


def _scaled(value: float, units: Sequence[str]) -> str:
    """Three digits and a unit, each of which is a thousand of the one before."""
    for unit in units[:-1]:
        if value < 999.5:  # noqa: PLR2004 - rounds to a thousand
            return f"{value:.3g} {unit}"
        value /= 1_000
    return f"{value:.3g} {units[-1]}"


def duration(seconds: float) -> str:
    """A time that something takes: `4 ms`, `90 s`, `5 min`, `3.5 h`."""
    if seconds < 1:
        return f"{seconds * 1_000:.3g} ms" if seconds else "0 s"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
