"""Subscriptions: their lag, streams, cursors and dead letters."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from rioni.console import exact_json
from rioni.console.api import ApiProblem, path_of
from rioni.console.charts import COUNT, DURATION, Chart, ChartLine, charts, partition_sparklines, sparklines
from rioni.console.pages.event_types import beginning
from rioni.console.pages.page import (
    PAGE,
    ConsolePage,
    Done,
    PageAction,
    Right,
    Visit,
    number_of,
    offset_of,
    page,
    with_warnings,
)


# --- The tab with the dead letters of a subscription: the list, a preview of the redrive, and the redrive in steps ---

SHOWN = 100
BYTES_MAX = 5_000_000
"""The bytes of events on a page: if events are larger, fewer are shown."""
REASON_BYTES_MAX = 4_000
"""Longer reasons, as an address has them, don't fit into one."""
STEPS_MAX = 100
"""The most requests, of at most 1,000 dead letters each, that follow each other without being asked for."""
NOTHING_LEFT = {"redriven": 0, "already_redriven": 0, "without_event_type": 0, "more": False, "reasons": []}
"""The preview after a step that has examined the last dead letter."""
_FILTERS = ("event_type", "partition", "from_offset", "to_offset", "reason")


def load_dead_letters(visit: Visit) -> dict[str, Any]:
    """The dead letters that the address selects, and, if it asks for that, a preview of a redrive of them."""
    wanted = _wanted(visit)
    found = visit.api.attempt(_path(visit), limit=SHOWN + 1, show_redriven="true", **wanted)
    if "items" in found:
        found |= _shown(found["items"], more="_links" in found)
    data = {"wanted": wanted, "force": _is_forced(visit), "dead_letters": found, "so_far": _so_far(visit)}
    data["after"] = _after(visit)
    if visit.as_of is None and ("redriven" in visit.outcome or visit.params.get("preview")):
        data["preview"] = _preview_of_redrive(visit)
    return data | visit.outcome


def redrive_dead_letters(visit: Visit) -> None:
    """Publish at most 1,000 of the dead letters again that the address selects; the page shows the counts.

    It continues at the end of the step before.
    """
    done = visit.api.send("POST", _path(visit, "redrive"), body=_selection(visit)).json()
    steps = number_of(visit.form, "steps") + 1
    goes_on = visit.form.get("go_on") == "yes" and "after" in done and steps < STEPS_MAX
    visit.outcome.update(redriven=done, so_far=_so_far(visit) + done["redriven"], steps=steps, goes_on=goes_on)


def _path(visit: Visit, *parts: str) -> str:
    return path_of("subscriptions", visit.path["id"], "dead-letters", *parts)


def _wanted(visit: Visit) -> dict[str, str]:
    return {name: visit.params[name] for name in _FILTERS if visit.params.get(name)}


def _is_forced(visit: Visit) -> bool:
    return visit.params.get("force") == "yes"


def _so_far(visit: Visit) -> int:
    """The number of events that the steps before have published."""
    return number_of(visit.form, "so_far")


def _after(visit: Visit) -> Any:
    """The place in the queue at which the next step begins; None for its beginning, and if nothing is left."""
    if "redriven" in visit.outcome:
        return visit.outcome["redriven"].get("after")
    place = {name: visit.form.get(f"after_{name}") for name in ("partition", "offset")}
    return place if any(place.values()) else None


def _selection(visit: Visit) -> dict[str, Any]:
    return {**_wanted(visit), "force": _is_forced(visit), "after": _after(visit)}


def _preview_of_redrive(visit: Visit) -> Any:
    """The preview of the next step."""
    if "redriven" in visit.outcome and _after(visit) is None:
        return NOTHING_LEFT
    try:
        return visit.api.send("POST", _path(visit, "redrive", "preview"), body=_selection(visit)).json()
    except ApiProblem as ex:
        return ex.as_object()


def _shown(items: Sequence[Mapping[str, Any]], *, more: bool) -> dict[str, Any]:
    """The items that fit on the page, whether there are more than these, or than `items`, and counts by reason."""
    shown = [{**each, "reason": _reason(each["error"])} for each in _fitting(items[:SHOWN])]
    reasons = Counter(each["reason"] for each in shown)
    counts = [
        {"reason": reason, "count": count, "is_link": 0 < len(quote(reason)) <= REASON_BYTES_MAX}
        for reason, count in reasons.most_common()
    ]
    return {"items": shown, "more": more or len(shown) < len(items), "reasons": counts}


def _reason(error: Mapping[str, Any]) -> str:
    """Why an event is here, in the words of its consumer if there are any."""
    return str(error.get("reason") or error.get("message", ""))


def _fitting(items: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    size = 0
    for each in items:
        yield each
        size += len(exact_json.encode(each))
        if size > BYTES_MAX:
            return


# --- The reasons why streams of a subscription ended, in words, and advice ---

_USUAL = "Nothing to do: clients open another one."
REASONS: Mapping[str, tuple[str, str]] = {
    "stream_timeout": ("Reached its stream timeout", _USUAL),
    "stream_limit": ("Delivered as many events as the client asked for", _USUAL),
    "keep_alive_limit": ("No events for as long as the client wanted to wait", _USUAL),
    "commit_timeout": (
        "The client did not commit in time",
        "Its events are delivered again. Let it commit more often, ask for fewer events, or for a longer timeout.",
    ),
    "no_partition": (
        "Other streams read all partitions",
        "Run no more streams than there are partitions, or add partitions.",
    ),
    "beyond_end": ("A committed cursor is beyond the last event", "Reset the cursors of this subscription."),
    "reset": ("The cursors were reset, or partitions were added", _USUAL),
    "blocked": ("The client or an event type is blocked", "An administrator can unblock it in the settings."),
    "unauthorized": (
        "The client lost the right to read",
        "Grant it again in the authorization of the subscription or the event type.",
    ),
    "token_expired": ("The token of the client expired or was withdrawn", "Let the client renew its token."),
    "event_type_deleted": ("An event type was deleted", "Stop the client, or subscribe it to another event type."),
    "subscription_deleted": ("The subscription was deleted", "Stop the client, or create another subscription."),
    "session_ended": (
        "Closed, by its client or by others, or its session was lost",
        "Nothing to do if it was closed. If not, look into the logs of the broker and of ZooKeeper.",
    ),
    "shutdown": ("The worker stopped", _USUAL),
    "failure": (
        "An error in the broker, or a filter that takes too long",
        "The log of the broker shows which; simplify the filter.",
    ),
    "client_gone": (
        "The client closed the connection, or read nothing for too long",
        "Nothing to do if it stopped. If not, look at its log, at proxies and at the network between.",
    ),
}
"""The meaning of each reason of the API, and what to do."""


def _ended_streams(visit: Visit) -> Any:
    """The ended streams of the subscription, each with the members `meaning` and `advice`, or the problem."""
    found = visit.api.attempt(path_of("subscriptions", visit.path["id"], "ended-streams"))
    for each in found.get("items", ()):
        # A node of a newer version may have recorded one that is not known here.
        each["meaning"], each["advice"] = REASONS.get(each["reason"], (each["reason"], ""))
    return found


TABS = ("partitions", "reset", "dead letters", "definition")
PLACES = ("begin", "end", "time")
_BACKWARDS = ("B", "I")
"""The beginning of tokens of pages that end at an id."""
_BEGIN = "new"
"""The token of the first page."""
_UNPROCESSABLE = 422
_PATH = "/subscriptions/{subscription_id}"


def _list(visit: Visit) -> dict[str, Any]:
    wanted = {name: visit.params.get(name) for name in ("owning_application", "event_type", "reader")}
    status = None if visit.as_of else "true"
    offset, token = offset_of(visit), visit.params.get("token") or None
    place = {"offset": offset} if token is None else {"token": token}
    answer = visit.api.get("/subscriptions", limit=PAGE + 1, show_status=status, **wanted, **place)
    found = answer["items"]
    places = _places(answer, token) if token is not None or offset == 0 else None
    if places is not None and token is not None and token.startswith(_BACKWARDS):
        found = found[-PAGE:]
    for subscription in found:
        partitions = [each for status in subscription.pop("status", []) for each in status["partitions"]]
        streams = {each["stream_id"] for each in partitions} - {""}
        subscription["streams"], subscription["partitions"] = len(streams), len(partitions)
        subscription["assigned"] = sum(1 for each in partitions if each["stream_id"])
    shown = page(found, offset)
    lags = sparklines(visit, "lag_events", "subscription", [each["id"] for each in shown["items"]])
    return shown | {"places": places, "lags": lags, "beginning": None if found else beginning(visit)}


def _places(answer: Mapping[str, Any], token: str | None) -> dict[str, str | None] | None:
    """The tokens of the neighbours of a page by token; None if it is one by offset.

    A feature of the broker decides that if the address does not. One more was asked for than is shown.
    """
    items, following = answer["items"], answer["_links"].get("next")
    more = len(items) > PAGE
    # Full pages by offset always have a next one.
    if token is None and (not more or (following is not None and "token=" not in following["href"])):
        return None
    if token is not None and token.startswith(_BACKWARDS):
        return {"prev": f"B{items[-PAGE]['id']}" if more else None, "next": f"F{items[-1]['id']}" if items else _BEGIN}
    before = token not in (None, _BEGIN)
    first = f"B{items[0]['id']}" if items else _BEGIN
    return {"prev": first if before else None, "next": f"F{items[PAGE - 1]['id']}" if more else None}


def _load(visit: Visit) -> dict[str, Any]:
    path = path_of("subscriptions", visit.path["id"])
    tab = visit.params.get("tab", TABS[0])
    data: dict[str, Any] = {"subscription": visit.api.get(path), "tabs": TABS, "tab": tab}
    if tab == "dead letters":
        return data | load_dead_letters(visit)
    if tab == "definition":
        return data
    stats = visit.api.attempt(f"{path}/stats", show_time_lag="true", show_initial_lag="true")
    data |= {"stats": stats, "cursors": visit.api.attempt(f"{path}/cursors"), "places": PLACES}
    if visit.as_of is None:
        names = "lag_events,lag_seconds"
        data["charts"] = charts(visit, _charts(visit.path["id"]), name=names, subscription=visit.path["id"])
        data["histories"] = partition_sparklines(visit, visit.path["id"])
        if tab != "reset":
            data["ended_streams"] = _ended_streams(visit)
    if "items" in stats:
        data["summary"] = _summary(stats["items"])
    if tab == "reset" and visit.form.get("action") == "preview":
        data["preview"] = _preview(visit, data["subscription"])
    return data


def _charts(subscription_id: str) -> list[Chart]:
    return [
        Chart("Unconsumed", COUNT, [ChartLine("lag_events", "events", subscription_id)]),
        Chart("Behind by", DURATION, [ChartLine("lag_seconds", "the first unconsumed event", subscription_id)]),
    ]


def _summary(stats: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Lag and streams over all partitions."""
    partitions = [each for item in stats for each in item["partitions"]]
    events = [each["unconsumed_events"] for each in partitions if "unconsumed_events" in each]
    seconds = [each["consumer_lag_seconds"] for each in partitions if "consumer_lag_seconds" in each]
    streams = {each["stream_id"] for each in partitions} - {""}
    return {
        "events": sum(events) if events else None,
        "seconds": max(seconds, default=None),
        "streams": len(streams),
        "partitions": len(partitions),
        "assigned": sum(1 for each in partitions if each["stream_id"]),
    }


# --- Changes ---


def _place(visit: Visit) -> dict[str, str]:
    """The place to which the form asks to move the cursors; raises ApiProblem."""
    match visit.form.get("to"):
        case "begin":
            return {"offset": "BEGIN"}
        case "end":
            return {"offset": "END"}
        case "time" if visit.form.get("time"):
            return {"timestamp": visit.form["time"]}
    detail = "Choose where to: the beginning, the end, or a time such as 2026-01-31T12:00:00Z."
    raise ApiProblem(_UNPROCESSABLE, {"title": "Nothing was reset", "detail": detail})


def _preview(visit: Visit, subscription: Mapping[str, Any]) -> Any:
    """The cursors that a reset would set, and how many events would come from there, by partition."""
    try:
        place = _place(visit)
        found = []
        for name in _chosen(visit, subscription):
            path = path_of("event-types", name)
            partitions = visit.api.get(f"{path}/partitions")
            cursors = [{"partition": each["partition"], **place} for each in partitions]
            lags = visit.api.send("POST", f"{path}/cursors-lag", body=cursors).json()
            found += [{"event_type": name, **each} for each in lags]
    except ApiProblem as ex:
        return ex.as_object()
    return {"items": found, "events": sum(each["unconsumed_events"] for each in found)}


def _chosen(visit: Visit, subscription: Mapping[str, Any]) -> list[str]:
    wanted = visit.form.get("event_type")
    return [wanted] if wanted else list(subscription["event_types"])


def _show_preview(_visit: Visit) -> None:
    """Show on the page where a reset would lead; nothing is changed."""


def _reset(visit: Visit) -> Done:
    path = path_of("subscriptions", visit.path["id"])
    place = _place(visit)
    items = [{"event_type": name, **place} for name in _chosen(visit, visit.api.get(path))]
    visit.api.send("PATCH", f"{path}/cursors", body={"items": items})
    return Done("The cursors are reset; streams have ended and begin there", f"{path}?tab=partitions")


def _close_stream(visit: Visit) -> Done:
    path = path_of("subscriptions", visit.path["id"])
    visit.api.send("DELETE", f"{path}{path_of('streams', visit.form.get('stream_id', ''))}")
    return Done("The stream is closed", path)


def _delete(visit: Visit) -> Done:
    path = path_of("subscriptions", visit.path["id"])
    application = visit.api.get(path)["owning_application"]
    if visit.form.get("name") != application:
        detail = f"Type the owning application {application} to delete its subscription."
        raise ApiProblem(_UNPROCESSABLE, {"title": "Not deleted", "detail": detail})
    visit.api.send("DELETE", path)
    return Done("The subscription is deleted", "/subscriptions")


def _set_filter(visit: Visit) -> Done:
    path = path_of("subscriptions", visit.path["id"])
    subscription = visit.api.get(path)
    visit.refuse_changed(subscription.get("filter", ""), "The filter was changed.")
    answer = visit.api.send("PUT", path, body=subscription | {"filter": visit.typed("filter").strip()})
    return Done(with_warnings("The filter is changed", answer), f"{path}?tab=definition")


def _clone(visit: Visit) -> Done:
    """A subscription like this one for another consumer group, which begins at the place of this one."""
    path = path_of("subscriptions", visit.path["id"])
    like = visit.api.get(path)
    cursors = visit.api.get(f"{path}/cursors")
    begins = [
        {name: each[name] for name in ("event_type", "partition", "offset")}
        for each in (cursors or {}).get("items", [])
    ]
    kept = ("owning_application", "event_types", "authorization", "annotations", "labels", "filter")
    body = {name: like[name] for name in kept if name in like}
    body |= {"consumer_group": visit.form.get("consumer_group", "")}
    body |= {"read_from": "cursors", "initial_cursors": begins} if begins else {"read_from": like["read_from"]}
    answer = visit.api.send("POST", "/subscriptions", body=body)
    made = answer.json()
    said = "The subscription is created" if answer.status == 201 else "There was such a subscription already"  # noqa: PLR2004
    return Done(with_warnings(said, answer), path_of("subscriptions", made["id"]))


SUBSCRIPTIONS = ConsolePage("/subscriptions", "subscriptions.html.jinja", "Subscriptions", _list)
SUBSCRIPTION = ConsolePage(
    "/subscriptions/{id}",
    "subscription.html.jinja",
    "Subscription",
    _load,
    {
        "preview": PageAction(_show_preview, None),
        "reset": PageAction(_reset, Right("subscription", "ADMIN", f"PATCH {_PATH}/cursors")),
        "close": PageAction(_close_stream, Right("subscription", "READ", f"DELETE {_PATH}/streams/{{stream_id}}")),
        "delete": PageAction(_delete, Right("subscription", "ADMIN", f"DELETE {_PATH}")),
        "filter": PageAction(_set_filter, Right("subscription", "ADMIN", f"PUT {_PATH}")),
        "clone": PageAction(_clone, Right("broker", "WRITE", "POST /subscriptions", of_all=True)),
        "redrive": PageAction(
            redrive_dead_letters, Right("subscription", "REDRIVE", f"POST {_PATH}/dead-letters/redrive")
        ),
    },
)
