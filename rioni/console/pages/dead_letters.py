"""The tab of a subscription with its dead letters: the list, a preview of the redrive, and the redrive in steps."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from rioni.console import exact_json
from rioni.console.api import ApiProblem, path_of
from rioni.console.pages.page import Visit, number_of


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


def load(visit: Visit) -> dict[str, Any]:
    """The dead letters that the address selects, and, if it asks for that, a preview of a redrive of them."""
    wanted = _wanted(visit)
    found = visit.api.attempt(_path(visit), limit=SHOWN + 1, show_redriven="true", **wanted)
    if "items" in found:
        found |= _shown(found["items"], more="_links" in found)
    data = {"wanted": wanted, "force": _is_forced(visit), "dead_letters": found, "so_far": _so_far(visit)}
    data["after"] = _after(visit)
    if visit.as_of is None and ("redriven" in visit.outcome or visit.params.get("preview")):
        data["preview"] = _preview(visit)
    return data | visit.outcome


def redrive(visit: Visit) -> None:
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


def _preview(visit: Visit) -> Any:
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
