"""Events of an event type: the newest, the oldest, or those from a time or an offset on; and publishing one."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import orjson

from rioni.console.api import ApiProblem, path_of
from rioni.console.pages.page import Action, Done, Page, Right, Visit


SHOWN = 50
"""Events on a page, over all partitions."""
EVALUATED = 20
"""Events on which the API tries a filter at once."""
BYTES_MAX = 1_000_000
"""Where larger events are shown, there are fewer of them."""
COLUMNS = 5
STARTS = ("newest", "oldest", "time", "offset")
SYMBOLIC = ("BEGIN", "END")
WITHOUT_METADATA, DATA = "undefined", "data"
"""Categories of event types."""


def _load(visit: Visit) -> dict[str, Any]:
    path = path_of("event-types", visit.path["name"])
    event_type = visit.api.get(path)
    data = {
        "event_type": event_type,
        "starts": STARTS,
        "start": visit.params.get("start", STARTS[0]),
        "columns": _columns(event_type),
        "example": example(event_type),
        "draft": visit.form.get("event", ""),
    }
    return data | _events(visit, path)


def _columns(event_type: Mapping[str, Any]) -> Sequence[str]:
    """Members of the schema that become columns."""
    try:
        schema = orjson.loads(event_type["schema"]["schema"])
    except orjson.JSONDecodeError:
        return []
    members = schema.get("properties") or {field["name"]: field for field in schema.get("fields", [])}
    return [name for name in members if name != "metadata"][:COLUMNS]


def _events(visit: Visit, path: str) -> dict[str, Any]:
    try:
        partitions = [each["partition"] for each in visit.api.get(f"{path}/partitions")]
        wanted = [each for each in partitions if visit.params.get("partition") in (None, "", each)]
        cursors, count = _start(visit, path, wanted)
        items = [*_read(visit, path, cursors, count)] if count else []
        evaluations = _evaluations(visit, items)
    except ApiProblem as ex:
        ex.detail = _once(ex.detail)
        return ex.as_object() | {"partitions": [], "items": [], "matching": 0}
    for item, evaluation in zip(items, evaluations, strict=True):
        item["evaluation"] = evaluation
    items.sort(key=_time, reverse=True)
    return {"partitions": partitions, "items": items, "matching": sum(each["matches"] for each in evaluations)}


def _once(detail: str) -> str:
    """What the API says of a field of all cursors, said once, since all of them have what the user typed."""
    first, *others = detail.splitlines() or [""]
    same = all(re.sub(r"\[\d+\]", "[0]", each) == first for each in others)
    return first if same else detail


def _evaluations(visit: Visit, items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Whether each event matches the filter of the page, and why; without a filter all of them do."""
    wanted = visit.params.get("filter", "").strip()
    if not wanted:
        return [{"matches": True, "parts": []}] * len(items)
    found: list[dict[str, Any]] = []
    # Also where there are no events: the filter may be wrong.
    for start in range(0, max(len(items), 1), EVALUATED):
        events = [item["event"] for item in items[start : start + EVALUATED]]
        found += visit.api.send("POST", "/filter-evaluations", body={"filter": wanted, "events": events}).json()[
            "items"
        ]
    return found


def _time(item: Mapping[str, Any]) -> tuple[str, str]:
    metadata = item["event"].get("metadata")
    received = metadata.get("received_at", "") if isinstance(metadata, dict) else ""
    return str(received), item["cursor"]["offset"]


def _start(visit: Visit, path: str, partitions: Sequence[str]) -> tuple[list[dict[str, Any]], int]:
    """The cursors behind which the page begins, and how many events there are to show."""
    shown = 1 if visit.params.get("only") else SHOWN
    each = max(1, shown // max(len(partitions), 1))
    match visit.params.get("start"):
        case "oldest":
            places = [{"partition": partition, "offset": "BEGIN"} for partition in partitions]
        case "time":
            places = [{"partition": partition, "timestamp": visit.params.get("time", "")} for partition in partitions]
        case "offset":
            places = [_at(partition, visit.params.get("offset", "")) for partition in partitions]
        case _:
            begins = [{"partition": partition, "offset": "BEGIN"} for partition in partitions]
            lags = visit.api.send("POST", f"{path}/cursors-lag", body=begins).json()
            shifts = [max(0, lag["unconsumed_events"] - each) for lag in lags]
            places = [begin | {"shift": shift} for begin, shift in zip(begins, shifts, strict=True)]
    # Only this operation takes times and shifts; streams begin at offsets.
    cursors = visit.api.send("POST", f"{path}/shifted-cursors", body=places).json()
    lags = visit.api.send("POST", f"{path}/cursors-lag", body=cursors).json()
    counts = [min(each, max(lag["unconsumed_events"], 0)) for lag in lags]
    read = [cursor for cursor, count in zip(cursors, counts, strict=True) if count]
    return read, sum(counts)


def _at(partition: str, offset: str) -> dict[str, Any]:
    """The place before the event with an offset, which is the first one shown."""
    place = {"partition": partition, "offset": offset}
    return place if offset in SYMBOLIC else place | {"shift": -1}


def _read(visit: Visit, path: str, cursors: Sequence[Mapping[str, Any]], count: int) -> Iterator[dict[str, Any]]:
    """The events after cursors, each with its cursor; ends when all have come, or nothing came for a second."""
    params = {
        "batch_limit": 1,
        "stream_limit": count,
        "batch_flush_timeout": 1,
        "stream_timeout": 5,
        "stream_keep_alive_limit": 1,
    }
    headers = {"X-Nakadi-Cursors": orjson.dumps(cursors).decode()}
    status, _, pieces = visit.api.open("GET", f"{path}/events", params=params, headers=headers)
    rest, size = b"", 0
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        size += len(piece)
        for batch in map(orjson.loads, lines):
            yield from ({"cursor": batch["cursor"], "event": event} for event in batch.get("events", ()))
        if size > BYTES_MAX:
            break
    if status >= HTTPStatus.BAD_REQUEST:
        raise ApiProblem(status, orjson.loads(rest or b"{}"))


# --- publishing ---


def _publish(visit: Visit) -> Done:
    name = visit.path["name"]
    path = path_of("event-types", name)
    try:
        event = orjson.loads(visit.form.get("event", ""))
    except orjson.JSONDecodeError as ex:
        raise _refused(f"This is not JSON: {ex}") from ex
    if not isinstance(event, dict):
        raise _refused("An event is a JSON object.")
    event = _completed(event, visit.api.get(path)["category"])
    try:
        visit.api.send("POST", f"{path}/events", body=[event])
    except ApiProblem as ex:
        results = ex.members.get("items")
        if not results:
            raise
        raise _refused(f"{results[0]['step']}: {results[0]['detail']}") from ex
    return Done("The event is published", f"{path}/events")


def example(event_type: Mapping[str, Any]) -> dict[str, Any]:
    """An event that the category of an event type permits, for the command that publishes one."""
    event: dict[str, Any] = {"order": "A-1"}
    if event_type["category"] == DATA:
        event = {"data_type": event_type["name"], "data_op": "C", "data": event}
    return _completed(event, event_type["category"])


def _completed(event: dict[str, Any], category: str) -> dict[str, Any]:
    """An event with the metadata that publishers have to send."""
    if category == WITHOUT_METADATA:
        return event
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    given = event.get("metadata") or {}
    if not isinstance(given, dict):
        raise _refused("The metadata of an event are a JSON object.")
    return event | {"metadata": {"eid": str(uuid4()), "occurred_at": now} | given}


def _refused(detail: str) -> ApiProblem:
    return ApiProblem(HTTPStatus.UNPROCESSABLE_ENTITY, {"title": "Not published", "detail": detail})


EVENTS = Page(
    "/event-types/{name}/events",
    "events.html.jinja",
    "Events of {name}",
    _load,
    {"publish": Action(_publish, Right("event_type", "WRITE"))},
)
