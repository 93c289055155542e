"""Events of an event type: the newest, the oldest, or those from a time or an offset on; and publishing one."""

import math
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import msgspec
import orjson

from rioni.console import exact_json
from rioni.console.api import Api, ApiProblem, path_of
from rioni.console.pages.event_types import DATA, WITHOUT_METADATA, example, new_metadata
from rioni.console.pages.page import ConsolePage, Done, PageAction, Right, Visit


# --- Events of several partitions by time: the newest ones, and their order ---
#
# Metadata hold the time at which the broker received an event. Events without metadata are ordered by the time at which
# they were stored: only the broker knows it, and answers whether an event was stored before a time. So times are
# halved, for all events in one request, until the order is known.

ROUNDS_MAX = 32
"""Requests for one page: enough to order events of the last day to the millisecond."""

Item = Mapping[str, Any]
"""An event with its cursor."""
Cursors = list[dict[str, Any]]


def newest_places(api: Api, path: str, partitions: Sequence[str], wanted: int) -> Cursors:
    """Places after which the newest events of all partitions are, and often some more; raises ApiProblem.

    Args:
        api: of the user.
        path: of the event type.
        partitions: those to consider.
        wanted: how many events there shall be, if the partitions have enough.
    """
    now = _now_ms()
    begins = [{"partition": partition, "offset": "BEGIN"} for partition in partitions]
    lags = ends = _lags(api, path, begins)
    if len(partitions) > 1 and sum(lags) > wanted:
        younger, older = 0, now
        for _ in range(ROUNDS_MAX):
            if older - younger <= 1:
                break
            age = _between(younger, older)
            places = [{"partition": partition, "timestamp": _timestamp(now - age)} for partition in partitions]
            counts = _lags(api, path, places)
            if sum(counts) < wanted:
                younger = age
                continue
            older, lags = age, counts
            if sum(counts) <= 2 * wanted:
                break
    return [
        begin | {"shift": max(0, end - min(lag, wanted))} for begin, lag, end in zip(begins, lags, ends, strict=True)
    ]


def newest_first(api: Api, path: str, items: Sequence[Item]) -> list[Item]:
    """These events by time, the newest first; raises ApiProblem.

    Args:
        api: of the user.
        path: of the event type.
        items: those of each partition in their order.
    """
    received = [_received_at(item) for item in items]
    times: Sequence[Any] = received if all(received) else _stored(api, path, items)
    # Events of one time and partition keep the order of the partition.
    numbered = sorted(range(len(items)), key=lambda number: (times[number], items[number]["cursor"]["offset"]))
    return [items[number] for number in reversed(numbered)]


def _received_at(item: Item) -> str:
    metadata = item["event"].get("metadata")
    return str(metadata.get("received_at") or "") if isinstance(metadata, dict) else ""


def _stored(api: Api, path: str, items: Sequence[Item]) -> list[int]:
    """The earliest time at which each event was stored, in milliseconds; exact enough for their order."""
    now = _now_ms()
    earliest, latest = [0] * len(items), [now + 1] * len(items)
    partitions = [item["cursor"]["partition"] for item in items]
    for _ in range(ROUNDS_MAX):
        unknown = [each for each in range(len(items)) if _is_unknown(each, partitions, earliest, latest)]
        if not unknown:
            break
        middles = {each: now - _between(now - latest[each], now - earliest[each]) for each in unknown}
        pairs = [
            {
                "initial_cursor": {"partition": partitions[each], "offset": items[each]["cursor"]["offset"]},
                "final_cursor": {"partition": partitions[each], "timestamp": _timestamp(middle)},
            }
            for each, middle in middles.items()
        ]
        found = api.send("POST", f"{path}/cursor-distances", body=pairs).json()
        for (each, middle), answer in zip(middles.items(), found, strict=True):
            # The position of a time is before the first event that was stored then or later.
            bounds = latest if answer["distance"] >= 0 else earliest
            bounds[each] = middle
    return earliest


def _is_unknown(number: int, partitions: Sequence[str], earliest: Sequence[int], latest: Sequence[int]) -> bool:
    """Whether an event may be older or younger than one of another partition."""
    begin, end = earliest[number], latest[number]
    return end - begin > 1 and any(
        partitions[number] != partition and begin < others_end and others_begin < end
        for partition, others_begin, others_end in zip(partitions, earliest, latest, strict=True)
    )


def _between(younger: int, older: int) -> int:
    """An age between two, in milliseconds: first of the right magnitude, then in the middle."""
    least = max(younger, 1)
    middle = math.isqrt(least * older) if older > 2 * least else (younger + older) // 2
    return min(max(middle, younger + 1), older - 1)


def _lags(api: Api, path: str, places: Sequence[Mapping[str, Any]]) -> list[int]:
    found = api.send("POST", f"{path}/cursors-lag", body=places).json()
    return [max(0, each["unconsumed_events"]) for each in found]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _timestamp(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat(timespec="milliseconds")


SHOWN = 50
"""Events on a page, over all partitions."""
EVALUATED = 20
"""Events on which the API tries a filter at once."""
BYTES_MAX = 1_000_000
"""The bytes of events on a page: if events are larger, fewer are shown."""
FEWER = 4
"""The divisor of the number of events that is asked for, if events are so large that not all fit."""
COLUMNS = 5
STARTS = ("newest", "oldest", "time", "offset")
SYMBOLIC = ("BEGIN", "END")


def _load(visit: Visit) -> dict[str, Any]:
    path = path_of("event-types", visit.path["name"])
    event_type = visit.api.get(path)
    data = {
        "event_type": event_type,
        "starts": STARTS,
        "start": _start_of(visit),
        "columns": _columns(event_type),
        "within": DATA if event_type["category"] == DATA else "",
        "example": example(event_type),
        "draft": visit.form.get("event", ""),
    }
    return data | _events(visit, path)


def _columns(event_type: Mapping[str, Any]) -> Sequence[str]:
    """Members of the schema that become columns; in the category `data` it is the schema of the member `data`."""
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
        items = _newest(visit, path, wanted) if _start_of(visit) == STARTS[0] else _from(visit, path, wanted)
        evaluations = _evaluations(visit, items)
    except ApiProblem as ex:
        ex.detail = _once(ex.detail)
        return ex.as_object() | {"partitions": [], "items": [], "matching": 0}
    for item, evaluation in zip(items, evaluations, strict=True):
        item["evaluation"] = evaluation
    return {"partitions": partitions, "items": items, "matching": sum(each["matches"] for each in evaluations)}


def _once(detail: str) -> str:
    """Return an error of the API in a field of all cursors once, since all of them have what the user typed."""
    first, *others = detail.splitlines() or [""]
    same = all(re.sub(r"\[\d+\]", "[0]", each) == first for each in others)
    return first if same else detail


def _evaluations(visit: Visit, items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Whether each event matches the filter of the page, and why; without a filter all of them do."""
    wanted = visit.params.get("filter", "").strip()
    if not wanted:
        return [{"matches": True, "parts": []}] * len(items)
    found: list[dict[str, Any]] = []
    # Asked even if there are no events: the filter may be wrong.
    for start in range(0, max(len(items), 1), EVALUATED):
        events = [item["event"] for item in items[start : start + EVALUATED]]
        found += visit.api.send("POST", "/filter-evaluations", body={"filter": wanted, "events": events}).json()[
            "items"
        ]
    return found


def _start_of(visit: Visit) -> str:
    start = visit.params.get("start")
    return start if start in STARTS else STARTS[0]


def _newest(visit: Visit, path: str, partitions: Sequence[str]) -> list[Any]:
    """The newest events of all partitions together; of large ones fewer, but none that is older than one left out."""
    shown = 1 if visit.params.get("only") else SHOWN
    while True:
        places = newest_places(visit.api, path, partitions, shown)
        items, whole = _read(visit, path, *_readable(visit, path, places, shown))
        if whole or shown == 1:
            return newest_first(visit.api, path, items)[:shown]
        shown = max(1, shown // FEWER)


def _from(visit: Visit, path: str, partitions: Sequence[str]) -> list[Any]:
    """The first events of each partition after the place that the page begins at."""
    shown = 1 if visit.params.get("only") else SHOWN
    match _start_of(visit):
        case "time":
            places = [{"partition": partition, "timestamp": visit.params.get("time", "")} for partition in partitions]
        case "offset":
            places = [_at(partition, visit.params.get("offset", "")) for partition in partitions]
        case _:
            places = [{"partition": partition, "offset": "BEGIN"} for partition in partitions]
    each = max(1, shown // max(len(partitions), 1))
    items, _ = _read(visit, path, *_readable(visit, path, places, each))
    return newest_first(visit.api, path, items)


def _readable(
    visit: Visit, path: str, places: Sequence[Mapping[str, Any]], each: int
) -> tuple[list[dict[str, Any]], int]:
    """The cursors of places that have events after them, and how many events to read, at most `each` of each place."""
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


def _read(
    visit: Visit, path: str, cursors: Sequence[Mapping[str, Any]], count: int
) -> tuple[list[dict[str, Any]], bool]:
    """The events after cursors, each with its cursor, and whether they are all that were wanted.

    Ends when all have arrived, when nothing arrived for a second, or when they are large.
    """
    found: list[dict[str, Any]] = []
    if not count:
        return found, True
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
        for batch in map(exact_json.decode, lines):
            found += [{"cursor": batch["cursor"], "event": event} for event in batch.get("events", ())]
        if size > BYTES_MAX:
            return found, len(found) >= count
    if status >= HTTPStatus.BAD_REQUEST:
        raise ApiProblem(status, orjson.loads(rest or b"{}"))
    return found, True


# --- Publishing ---


def _publish(visit: Visit) -> Done:
    name = visit.path["name"]
    path = path_of("event-types", name)
    # PERF: 0.3 s for 1 MB of short members.
    members = visit.api.compute(_members, visit.form.get("event", "").strip())
    event_type = visit.api.get(path)
    visit.refuse_changed(event_type["created_at"], f"{name} was deleted and created again.")
    members = _completed(members, event_type["category"])
    try:
        # The values as they were typed: the broker refuses those that can't be stored.
        visit.api.send("POST", f"{path}/events", body=msgspec.json.encode([members]))
    except ApiProblem as ex:
        results = ex.members.get("items")
        if not results:
            raise
        raise _refused(f"{results[0]['step']}: {results[0]['detail']}") from ex
    return Done("The event is published", f"{path}/events")


def _members(event: str) -> dict[str, msgspec.Raw]:
    """The members of an event as they were typed."""
    try:
        if isinstance(exact_json.decode_typed(event), dict):
            return msgspec.json.decode(event, type=dict[str, msgspec.Raw])
    except ValueError as ex:
        raise _refused(f"This is not JSON: {ex}") from ex
    raise _refused("An event is a JSON object.")


def _completed(event: dict[str, Any], category: str) -> dict[str, Any]:
    """An event with the metadata that publishers have to send; its values are JSON."""
    if category == WITHOUT_METADATA:
        return event
    try:
        given = msgspec.json.decode(event.get("metadata", b"null"), type=dict[str, msgspec.Raw] | None)
    except msgspec.ValidationError as ex:
        raise _refused("The metadata of an event are a JSON object.") from ex
    return event | {"metadata": new_metadata() | (given or {})}


def _refused(detail: str) -> ApiProblem:
    return ApiProblem(HTTPStatus.UNPROCESSABLE_ENTITY, {"title": "Not published", "detail": detail})


EVENTS = ConsolePage(
    "/event-types/{name}/events",
    "events.html.jinja",
    "Events of {name}",
    _load,
    {"publish": PageAction(_publish, Right("event_type", "WRITE", "POST /event-types/{name}/events"))},
)
