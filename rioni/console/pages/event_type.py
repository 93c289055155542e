"""One event type: its definition, its schema, its users, its partitions and timelines, and its changes."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rioni.console import exact_json
from rioni.console.api import ApiProblem, path_of
from rioni.console.charts import BYTE_RATE, RATE, Chart, ChartLine, charts
from rioni.console.differences import difference
from rioni.console.pages.event_types import example
from rioni.console.pages.page import ConsolePage, Done, PageAction, Right, Visit, number_of, offset_of, with_warnings
from rioni.console.rendering import pretty


TABS = ("overview", "schema", "partitions", "timelines", "usage", "edit")
VERSIONS_MAX = 20
MEMBERS_MAX = 100
"""The most members of a definition; an event type has 20."""
LATEST = "latest"
_READ_ONLY = ("created_at", "updated_at")
"""Members that only the broker sets."""
_PRECONDITION_FAILED, _UNPROCESSABLE = 412, 422
_PATH = "/event-types/{name}"


def _load(visit: Visit) -> dict[str, Any]:
    name = visit.path["name"]
    answer = visit.api.send("GET", path_of("event-types", name), params={"as_of": visit.as_of})
    tab = visit.params.get("tab", TABS[0])
    data: dict[str, Any] = {"event_type": answer.json(), "etag": answer.headers.get("etag"), "tabs": TABS, "tab": tab}
    loaders = {
        "overview": _usage,
        "schema": _schema,
        "partitions": _partitions,
        "timelines": _timelines,
        "usage": _usage,
        "edit": _edit,
    }
    return data | loaders.get(tab, _usage)(visit, data["event_type"])


def _usage(visit: Visit, event_type: Mapping[str, Any]) -> dict[str, Any]:
    path = path_of("event-types", event_type["name"])
    return {
        "example": example(event_type),
        "producers": visit.api.attempt(f"{path}/producers"),
        "consumers": visit.api.attempt(f"{path}/consumers", show_time_lag="true"),
        "partitions": visit.api.attempt(f"{path}/partitions"),
        "charts": charts(visit, _charts(event_type["name"]), event_type=event_type["name"]) if not visit.as_of else [],
    }


def _charts(name: str) -> list[Chart]:
    return [
        Chart("Published", RATE, [ChartLine("published_events", "events", name)]),
        Chart("Received", BYTE_RATE, [ChartLine("published_bytes", "bytes of publish requests", name)]),
    ]


def _partitions(visit: Visit, event_type: Mapping[str, Any]) -> dict[str, Any]:
    found = visit.api.attempt(path_of("event-types", event_type["name"], "partitions"))
    return {"partitions": found if "problem" in found else [each | {"empty": is_empty(each)} for each in found]}


def is_empty(partition: Mapping[str, str]) -> bool:
    """Whether a partition has no events: its newest offset is then the one before its oldest."""
    oldest, newest = (partition[f"{end}_available_offset"].split("-", 2)[1:] for end in ("oldest", "newest"))
    return [*map(int, newest)] < [*map(int, oldest)]


def _timelines(visit: Visit, event_type: Mapping[str, Any]) -> dict[str, Any]:
    timelines = visit.api.attempt(path_of("event-types", event_type["name"], "timelines"))
    if "problem" not in timelines:
        now = datetime.now(UTC)
        timelines = [each | {"state": timeline_state(each, now, newest=each is timelines[-1])} for each in timelines]
    return {"timelines": timelines, "storages": visit.api.attempt("/storages")}


def timeline_state(timeline: Mapping[str, Any], now: datetime, *, newest: bool) -> str:
    """A timeline's state for the user: `switching`, `active`, `closed` while its events are kept, or `cleaned up`."""
    if timeline["switched_at"] is None:
        return "switching"
    ends = timeline["cleaned_up_at"]
    if ends is not None and datetime.fromisoformat(ends) <= now:
        return "cleaned up"
    return "active" if newest else "closed"


def _schema(visit: Visit, event_type: Mapping[str, Any]) -> dict[str, Any]:
    path = path_of("event-types", event_type["name"], "schemas")
    offset = offset_of(visit)
    versions = visit.api.get(path, limit=VERSIONS_MAX + 1, offset=offset)["items"]
    more, versions = len(versions) > VERSIONS_MAX, versions[:VERSIONS_MAX]
    by_version = {each["version"]: each for each in versions}

    newest = versions[0] if versions else event_type["schema"]
    shown = by_version.get(visit.params.get("version", ""), newest)
    before = by_version.get(against := visit.params.get("against", ""))
    if before is None and against:
        found = visit.api.attempt(path_of("event-types", event_type["name"], "schemas", against))
        before = found if "schema" in found else None
    data = {
        "versions": [{"version": each["version"]} for each in versions],
        "offset": offset,
        "more": more,
        "page": VERSIONS_MAX,
        "shown": shown,
        "against": None if before is None else before["version"],
    }
    if before is not None:
        data["difference"] = visit.compute(_schema_difference, before["schema"], shown["schema"])
        data["compatibility"] = _compatibility(visit, event_type["name"], before["version"], shown)
    return data


def _compatibility(visit: Visit, name: str, version: str, schema: Mapping[str, Any]) -> Any:
    """Whether a schema may follow a version, with an event that would become invalid if it may not."""
    path = path_of("event-types", name, "schemas", version, "compatibility-check")
    try:
        return visit.api.send("POST", path, body={"type": schema["type"], "schema": schema["schema"]}).json()
    except ApiProblem as ex:
        return ex.as_object()


def _schema_difference(before: str, after: str) -> list[dict[str, str]]:
    return difference(pretty(before), pretty(after))


# --- Changes ---


def _edit(visit: Visit, event_type: Mapping[str, Any]) -> dict[str, Any]:
    members = {name: value for name, value in event_type.items() if name not in _READ_ONLY}
    text = visit.form.get("definition")
    if text is None:
        text = visit.compute(_shown, members)
    plan = _plan(visit, event_type, text) if visit.form.get("action") in ("plan", "apply") else None
    return {"definition": text, "plan": plan, "begun": visit.form.get("etag")}


def _shown(members: Mapping[str, Any]) -> str:
    return pretty({**members, "schema": readable_schema(members["schema"])})


def readable_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema whose text is JSON as an object, so that people can read and change it."""
    try:
        return {"type": schema["type"], "schema": exact_json.decode_typed(schema["schema"])}
    except ValueError:
        return {"type": schema["type"], "schema": schema["schema"]}


def _parsed(text: str, event_type: Mapping[str, Any]) -> dict[str, Any]:
    """The definition that was typed, in the form of the API; raises ApiProblem.

    A schema that reads like the present one is sent as it is stored: another text would be another version.
    """
    try:
        members = exact_json.decode_typed(text)
    except ValueError as ex:
        raise ApiProblem(_UNPROCESSABLE, {"title": "This is not JSON", "detail": str(ex)}) from ex
    schema = members.get("schema") if isinstance(members, dict) else None
    if not isinstance(schema, dict) or not {"type", "schema"} <= schema.keys():
        detail = "It needs a member schema, with type and schema."
        raise ApiProblem(_UNPROCESSABLE, {"title": "This is not an event type", "detail": detail})
    if len(members) > MEMBERS_MAX:
        detail = f"It has {len(members):,} members; {MEMBERS_MAX} are compared at most."
        raise ApiProblem(_UNPROCESSABLE, {"title": "This is not an event type", "detail": detail})
    text = schema["schema"] if isinstance(schema["schema"], str) else exact_json.encode(schema["schema"]).decode()
    typed = schema | {"schema": text}
    if _text("schema", typed) == _text("schema", event_type["schema"]):
        typed["schema"] = event_type["schema"]["schema"]
    return {**members, "schema": typed}


def _plan(visit: Visit, event_type: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The changes that a text would make: each member before and after, and whether the schema may follow."""
    try:
        wanted = visit.compute(_parsed, text, event_type)
    except ApiProblem as ex:
        return ex.as_object() | {"changes": []}
    schema = {name: event_type["schema"][name] for name in ("type", "schema")}
    current = {**event_type, "schema": schema}
    changes = [
        {"member": name, "difference": visit.compute(difference, *texts)}
        for name in wanted
        if name not in _READ_ONLY and len(set(texts := visit.compute(_texts, name, current, wanted))) > 1
    ]
    plan: dict[str, Any] = {"changes": changes, "compatibility": None}
    if any(change["member"] == "schema" for change in changes):
        plan["compatibility"] = _compatibility(visit, event_type["name"], LATEST, wanted["schema"])
    return plan


def _texts(member: str, *definitions: Mapping[str, Any]) -> list[str]:
    return [_text(member, each.get(member)) for each in definitions]


def _text(member: str, value: Any) -> str:
    return pretty(readable_schema(value) if member == "schema" else value)


def _apply(visit: Visit) -> Done:
    name = visit.path["name"]
    headers = {"If-Match": visit.form["etag"]} if visit.form.get("etag") else {}
    body = visit.compute(_parsed, visit.form.get("definition", ""), visit.api.get(path_of("event-types", name)))
    try:
        answer = visit.api.send("PUT", path_of("event-types", name), body=body, headers=headers)
    except ApiProblem as ex:
        if ex.status != _PRECONDITION_FAILED:
            raise
        detail = "The event type was changed meanwhile. Look at the plan again before you apply it."
        raise ApiProblem(_PRECONDITION_FAILED, {"title": "Changed meanwhile", "detail": detail}) from ex
    return Done(with_warnings(f"{name} is changed", answer), path_of("event-types", name))


def refuse_another(visit: Visit) -> None:
    """Raise ApiProblem if the event type of the form was deleted, and another one has its name."""
    name = visit.path["name"]
    event_type = visit.api.get(path_of("event-types", name))
    visit.refuse_changed(event_type["created_at"], f"{name} was deleted and created again.")


def _delete(visit: Visit) -> Done:
    name = visit.path["name"]
    if visit.form.get("name") != name:
        raise ApiProblem(_UNPROCESSABLE, {"title": "Not deleted", "detail": f"Type the name {name} to delete it."})
    refuse_another(visit)
    visit.api.send("DELETE", path_of("event-types", name))
    return Done(f"{name} is deleted", "/event-types")


def _switch(visit: Visit) -> Done:
    name, storage = visit.path["name"], visit.form.get("storage_id", "")
    refuse_another(visit)
    visit.api.send("POST", path_of("event-types", name, "timelines"), body={"storage_id": storage})
    return Done(
        f"Events of {name} are stored in {storage} from now on", f"{path_of('event-types', name)}?tab=timelines"
    )


def _add_partitions(visit: Visit) -> Done:
    name = visit.path["name"]
    if not (count := number_of(visit.form, "count")):
        raise ApiProblem(
            _UNPROCESSABLE, {"title": "Not changed", "detail": "The number of partitions is a whole number."}
        )
    refuse_another(visit)
    visit.api.send("PUT", path_of("event-types", name, "partition-count"), body={"partition_count": count})
    return Done(f"{name} has {count} partitions", f"{path_of('event-types', name)}?tab=partitions")


def _show_plan(_visit: Visit) -> None:
    """The page shows the plan, see `_edit`; nothing is changed."""


EVENT_TYPE = ConsolePage(
    "/event-types/{name}",
    "event_type.html.jinja",
    "{name}",
    _load,
    {
        "plan": PageAction(_show_plan, None),
        "apply": PageAction(_apply, Right("event_type", "ADMIN", f"PUT {_PATH}")),
        "delete": PageAction(_delete, Right("event_type", "ADMIN", f"DELETE {_PATH}")),
        "switch": PageAction(_switch, Right("broker", "WRITE", f"POST {_PATH}/timelines")),
        "partitions": PageAction(_add_partitions, Right("broker", "WRITE", f"PUT {_PATH}/partition-count")),
    },
)
