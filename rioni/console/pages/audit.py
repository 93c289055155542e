"""The audit trail: changes and who made them, the states before and after, and their proofs."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from rioni.console.api import ApiProblem
from rioni.console.differences import difference
from rioni.console.pages.event_type import readable_schema
from rioni.console.pages.page import ConsolePage, Visit
from rioni.console.rendering import pretty


PAGE = 50
FILTERS = ("resource", "kind", "actor", "flow_id", "since", "until")
CHECKPOINT_LINES = 3
"""Origin, size and root."""
LOG_POSITION = "log-position"
"""The header with the position of the log that an answer shows."""


def _load(visit: Visit) -> dict[str, Any]:
    wanted = {name: visit.params.get(name) for name in (*FILTERS, "after", "before")}
    refusal = {}
    try:
        answer = visit.api.send("GET", "/audit", params={"limit": PAGE, **wanted})
        found = answer.json()
    except ApiProblem as ex:
        if ex.status != HTTPStatus.BAD_REQUEST:
            raise
        # The filters stay, so that the user can correct them.
        answer = visit.api.send("GET", "/audit", params={"limit": 1})
        found, refusal = {"items": [], "_links": {}}, ex.as_object()
    newest = int(answer.headers[LOG_POSITION])
    return {
        "newest": newest,
        "moment": newest if visit.as_of is None else moment(visit),
        "items": found["items"],
        "next": _place(found["_links"], "next"),
        "prev": _place(found["_links"], "prev"),
        "filters": FILTERS,
        "checkpoint": _checkpoint(visit),
        "denials": visit.api.attempt("/audit/denials", limit=10),
        **refusal,
    }


def moment(visit: Visit) -> int:
    """The entry that the console shows: the last one until then, if `as_of` is a time.

    Raises:
        ApiProblem: the log does not reach there.
    """
    answer = visit.api.send("GET", "/event-types", params={"limit": 1, "as_of": visit.as_of})
    return int(answer.headers[LOG_POSITION])


def _place(links: Mapping[str, Mapping[str, str]], name: str) -> dict[str, str] | None:
    """The query of a neighbouring page."""
    return dict(parse_qsl(links[name]["href"].partition("?")[2])) if name in links else None


def _checkpoint(visit: Visit) -> Any:
    """Size and root of the log as its checkpoint has them, and how many witnesses have cosigned it."""
    found = visit.api.attempt_text("/log/checkpoint")
    if not isinstance(found, str):
        return found
    text, _, signatures = found.partition("\n\n")
    origin, size, root = text.splitlines()[:CHECKPOINT_LINES]
    return {"origin": origin, "size": int(size), "root": root, "witnesses": signatures.strip().count("\n")}


def _entry(visit: Visit) -> dict[str, Any]:
    position = visit.path["position"]
    number = int(position) if position.isdecimal() else 0
    found = visit.api.get("/audit", after=str(max(number - 1, 0)), order="asc", limit=1, states="true")
    entry = next((each for each in found["items"] if each["position"] == number), None)
    proof = visit.api.attempt("/log/proof/inclusion", position=position)
    if entry is None:
        return {"entry": None, "position": position, "proof": proof}
    lines = visit.compute(_difference, entry.get("before"), entry.get("after"))
    return {"entry": entry, "position": position, "difference": lines, "proof": proof}


def _difference(before: Any, after: Any) -> list[dict[str, str]]:
    return difference(_text(before), _text(after))


def _text(state: Any) -> str:
    """A state in which the text of a schema is an object, so that its differences are seen; empty if there is none."""
    if state is None:
        return ""
    if isinstance(state, dict) and isinstance(state.get("schema"), dict) and "schema" in state["schema"]:
        state = state | {"schema": state["schema"] | readable_schema(state["schema"])}
    return pretty(state)


AUDIT = ConsolePage("/audit", "audit.html.jinja", "Audit", _load)
AUDIT_ENTRY = ConsolePage("/audit/{position}", "audit_entry.html.jinja", "Audit entry {position}", _entry)
