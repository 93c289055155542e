"""The first page: how the broker is."""

from datetime import datetime
from typing import Any

from rioni.console.api import ApiProblem, path_of
from rioni.console.charts import (
    COUNT,
    DURATION,
    PATH,
    RATE,
    SPARKLINE_STEP_S,
    Chart,
    ChartLine,
    charts,
    from_zero,
    label_of,
    last,
)
from rioni.console.pages.audit import moment
from rioni.console.pages.event_types import beginning
from rioni.console.pages.page import ConsolePage, Visit


CHARTS = (
    Chart("Published", RATE, (ChartLine("published_events", "events"),)),
    Chart("Delivered", RATE, (ChartLine("streamed_events", "events"),)),
    Chart(
        "Requests",
        RATE,
        (ChartLine("requests", "all"), ChartLine("client_errors", "4xx"), ChartLine("server_errors", "5xx")),
    ),
    Chart(
        "Publishing takes",
        DURATION,
        (ChartLine("publish_seconds", "99th percentile", "0.99"), ChartLine("publish_seconds", "median", "0.5")),
    ),
    Chart("Unconsumed", COUNT, (ChartLine("lag_events", "events of all subscriptions"),)),
    Chart("Behind by", DURATION, (ChartLine("lag_seconds", "the oldest unconsumed event"),)),
)
MOST = 10
"""The number of the largest that are listed."""
SILENT_S = 20
"""Workers report every ten seconds, and are not listed any more after thirty without a report."""


def _load(visit: Visit) -> dict[str, Any]:
    now = visit.as_of is None
    lagging, busiest = (_lagging(visit), _largest(visit, "published_events")) if now else ([], [])
    return {
        "version": visit.api.attempt("/version"),
        "ready": _ready(visit),
        "nodes": _nodes(visit) if now else {"items": []},
        "charts": charts(visit, CHARTS, total="true") if now else [],
        "lagging": lagging,
        "busiest": busiest,
        "beginning": beginning(visit) if now and not (lagging and busiest) else None,
        "changes": visit.api.attempt("/audit", limit=10, after=None if now else moment(visit) + 1),
    }


def _ready(visit: Visit) -> Any:
    """The health checks; a broker that is not ready refuses the request, and lists those that failed."""
    try:
        return visit.api.get("/readyz")
    except ApiProblem as ex:
        return dict(ex.members) if "checks" in ex.members else ex.in_place()


def _nodes(visit: Visit) -> Any:
    """The nodes with how many workers they have and should have, and which workers have missed a report."""
    found = visit.api.attempt("/nodes")
    if "problem" in found:
        return found
    workers = [
        (each, datetime.fromisoformat(each["reported_at"])) for node in found["items"] for each in node["workers"]
    ]
    latest = max((reported for _, reported in workers), default=None)
    for each, reported in workers:
        each["silent"] = latest is not None and (latest - reported).total_seconds() >= SILENT_S
    configured = sum(node["configured_workers"] for node in found["items"])
    return found | {"workers": len(workers), "configured_workers": configured}


def _largest(visit: Visit, name: str) -> list[dict[str, Any]]:
    """The event types or subscriptions with the largest values now, those that are zero left out."""
    found = visit.api.attempt(PATH, name=name, total="false", order="largest", limit=MOST, step=SPARKLINE_STEP_S)
    series = [{"of": label_of(each), **each, "values": from_zero(each)} for each in found.get("series", ())]
    return [each | {"last": value} for each in series if (value := last(each["values"]))]


def _lagging(visit: Visit) -> list[dict[str, Any]]:
    """The subscriptions with most unconsumed events, and whose they are."""
    found = _largest(visit, "lag_events")
    for each in found:
        each["subscription"] = visit.api.attempt(path_of("subscriptions", each["of"]))
    wanted = ",".join(each["of"] for each in found)
    ages = visit.api.attempt(PATH, name="lag_seconds", subscription=wanted, step=SPARKLINE_STEP_S) if found else {}
    seconds = {label_of(each): last(each["values"]) for each in ages.get("series", ())}
    return [each | {"seconds": seconds.get(each["of"])} for each in found]


OVERVIEW = ConsolePage("/", "overview.html.jinja", "Overview", _load)
