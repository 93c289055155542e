"""One event type: what it is, its schema, who uses it, its partitions and timelines, and its changes."""

import difflib
from collections.abc import Mapping
from typing import Any

import orjson

from rioni.console.api import ApiProblem, path_of
from rioni.console.charts import BYTE_RATE, RATE, Chart, Line, charts
from rioni.console.pages.events import example
from rioni.console.pages.page import Action, Done, Page, Right, Visit
from rioni.console.rendering import pretty


TABS = ("overview", "schema", "partitions", "timelines", "usage", "edit")
VERSIONS_MAX = 200
LATEST = "latest"
_READ_ONLY = ("created_at", "updated_at")
"""Members that only the broker sets."""
_PRECONDITION_FAILED, _UNPROCESSABLE = 412, 422
_ADMIN, _OPERATOR = Right("event_type", "ADMIN"), Right("broker", "WRITE")


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
        "consumers": visit.api.attempt(f"{path}/consumers"),
        "partitions": visit.api.attempt(f"{path}/partitions"),
        "charts": charts(visit, _charts(event_type["name"]), event_type=event_type["name"]) if not visit.as_of else [],
    }


def _charts(name: str) -> list[Chart]:
    return [
        Chart("Published", RATE, [Line("published_events", "events", name)]),
        Chart("Received", BYTE_RATE, [Line("published_bytes", "bytes of publish requests", name)]),
    ]


def _partitions(visit: Visit, event_type: Mapping[str, Any]) -> dict[str, Any]:
    return {"partitions": visit.api.attempt(path_of("event-types", event_type["name"], "partitions"))}


def _timelines(visit: Visit, event_type: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "timelines": visit.api.attempt(path_of("event-types", event_type["name"], "timelines")),
        "storages": visit.api.attempt("/storages"),
    }


def _schema(visit: Visit, event_type: Mapping[str, Any]) -> dict[str, Any]:
    path = path_of("event-types", event_type["name"], "schemas")
    versions = visit.api.get(path, limit=VERSIONS_MAX)["items"]
    by_version = {each["version"]: each for each in versions}
    newest = versions[0]["version"]
    shown = by_version.get(visit.params.get("version", newest), versions[0])
    before = by_version.get(visit.params.get("against", ""))
    data = {"versions": versions, "shown": shown, "against": None if before is None else before["version"]}
    if before is not None:
        data["difference"] = difference(pretty(before["schema"]), pretty(shown["schema"]))
        data["compatibility"] = _compatibility(visit, event_type["name"], before["version"], shown)
    return data


def _compatibility(visit: Visit, name: str, version: str, schema: Mapping[str, Any]) -> Any:
    """Whether a schema may follow a version, with an event that would become invalid if it may not."""
    path = path_of("event-types", name, "schemas", version, "compatibility-check")
    try:
        return visit.api.send("POST", path, body={"type": schema["type"], "schema": schema["schema"]}).json()
    except ApiProblem as ex:
        return ex.as_object()


def difference(before: str, after: str) -> list[dict[str, str]]:
    """Two texts line by line: a sign (`+`, `-` or a space) and the text, with unchanged parts left out."""
    lines = [*difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=4)][2:]
    return [{"sign": line[:1], "text": line[1:] if line[:1] in "+- " else line[1:].strip("@ ")} for line in lines]


# --- changes ---


def _edit(visit: Visit, event_type: Mapping[str, Any]) -> dict[str, Any]:
    members = {name: value for name, value in event_type.items() if name not in _READ_ONLY}
    text = visit.form.get("definition") or pretty({**members, "schema": readable_schema(members["schema"])})
    plan = _plan(visit, event_type, text) if visit.form.get("action") in ("plan", "apply") else None
    return {"definition": text, "plan": plan}


def readable_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema whose text is JSON as an object, so that people can read and change it."""
    try:
        return {"type": schema["type"], "schema": orjson.loads(schema["schema"])}
    except orjson.JSONDecodeError:
        return {"type": schema["type"], "schema": schema["schema"]}


def _parsed(text: str) -> dict[str, Any]:
    """The definition that was typed, in the form of the API; raises ApiProblem."""
    try:
        members = orjson.loads(text)
    except orjson.JSONDecodeError as ex:
        raise ApiProblem(_UNPROCESSABLE, {"title": "This is not JSON", "detail": str(ex)}) from ex
    if not isinstance(members, dict) or not isinstance(members.get("schema"), dict):
        raise ApiProblem(_UNPROCESSABLE, {"title": "This is not an event type", "detail": "It needs a member schema."})
    schema = members["schema"]
    if not isinstance(schema.get("schema"), str):
        members["schema"] = {"type": schema.get("type"), "schema": orjson.dumps(schema.get("schema")).decode()}
    return members


def _plan(visit: Visit, event_type: Mapping[str, Any], text: str) -> dict[str, Any]:
    """What would change: each member before and after, and whether the schema may follow."""
    try:
        wanted = _parsed(text)
    except ApiProblem as ex:
        return ex.as_object() | {"changes": []}
    schema = {name: event_type["schema"][name] for name in ("type", "schema")}
    current = {**event_type, "schema": schema}
    changes = [
        {"member": name, "difference": difference(_text(current.get(name)), _text(wanted[name]))}
        for name in wanted
        if name not in _READ_ONLY and not _equal(current.get(name), wanted[name])
    ]
    plan: dict[str, Any] = {"changes": changes, "compatibility": None}
    if any(change["member"] == "schema" for change in changes):
        plan["compatibility"] = _compatibility(visit, event_type["name"], LATEST, wanted["schema"])
    return plan


def _text(value: Any) -> str:
    if isinstance(value, dict) and "schema" in value:
        value = readable_schema(value)
    return pretty(value)


def _equal(before: Any, after: Any) -> bool:
    return _text(before) == _text(after)


def _apply(visit: Visit) -> Done:
    name = visit.path["name"]
    headers = {"If-Match": visit.form["etag"]} if visit.form.get("etag") else {}
    body = _parsed(visit.form.get("definition", ""))
    try:
        visit.api.send("PUT", path_of("event-types", name), body=body, headers=headers)
    except ApiProblem as ex:
        if ex.status != _PRECONDITION_FAILED:
            raise
        detail = "The event type was changed meanwhile. Look at the plan again before you apply it."
        raise ApiProblem(_PRECONDITION_FAILED, {"title": "Changed meanwhile", "detail": detail}) from ex
    return Done(f"{name} is changed", path_of("event-types", name))


def _delete(visit: Visit) -> Done:
    name = visit.path["name"]
    if visit.form.get("name") != name:
        raise ApiProblem(_UNPROCESSABLE, {"title": "Not deleted", "detail": f"Type the name {name} to delete it."})
    visit.api.send("DELETE", path_of("event-types", name))
    return Done(f"{name} is deleted", "/event-types")


def _switch(visit: Visit) -> Done:
    name, storage = visit.path["name"], visit.form.get("storage_id", "")
    visit.api.send("POST", path_of("event-types", name, "timelines"), body={"storage_id": storage})
    return Done(
        f"Events of {name} are stored in {storage} from now on", f"{path_of('event-types', name)}?tab=timelines"
    )


def _add_partitions(visit: Visit) -> Done:
    name, text = visit.path["name"], visit.form.get("count", "")
    if not text.isdecimal():
        raise ApiProblem(
            _UNPROCESSABLE, {"title": "Not changed", "detail": "The number of partitions is a whole number."}
        )
    visit.api.send("PUT", path_of("event-types", name, "partition-count"), body={"partition_count": int(text)})
    return Done(f"{name} has {text} partitions", f"{path_of('event-types', name)}?tab=partitions")


def _show_plan(_visit: Visit) -> None:
    """The page shows the plan, see `_edit`; nothing is changed."""


EVENT_TYPE = Page(
    "/event-types/{name}",
    "event_type.html.jinja",
    "{name}",
    _load,
    {
        "plan": Action(_show_plan, None),
        "apply": Action(_apply, _ADMIN),
        "delete": Action(_delete, _ADMIN),
        "switch": Action(_switch, _OPERATOR),
        "partitions": Action(_add_partitions, _OPERATOR),
    },
)
