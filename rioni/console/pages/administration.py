"""Storages, settings and jobs of the broker."""

from collections.abc import Mapping
from typing import Any

from rioni.console import exact_json
from rioni.console.api import ApiProblem, path_of
from rioni.console.pages.page import ConsolePage, Done, PageAction, Right, Visit


KINDS = ("admins", "readers", "writers")
BLACKLIST = {
    "CONSUMER_APP": ("consumers", "apps", "Applications that may not consume"),
    "CONSUMER_ET": ("consumers", "event_types", "Event types that nobody may consume"),
    "PRODUCER_APP": ("producers", "apps", "Applications that may not publish"),
    "PRODUCER_ET": ("producers", "event_types", "Event types that nobody may publish to"),
}
FEATURES = {
    "disable_event_type_creation": "No event type can be created.",
    "disable_event_type_deletion": "Only administrators of the broker delete event types.",
    "delete_event_type_with_subscriptions": "Subscriptions are deleted with their event type.",
    "disable_subscription_creation": "No subscription can be created.",
    "remote_tokeninfo": "Only the remote token info service is asked about tokens.",
    "kpi_collection": "Figures about requests are published as events.",
    "audit_log_collection": "The audit log is published as events.",
    "access_log_enabled": "Requests are written to the log.",
    "disable_db_write_operations": "Nothing can be created, changed or deleted, and no timeline is cleaned up.",
    "force_event_type_authz": "Event types must state who may read, write and administer them.",
    "force_subscription_authz": "Subscriptions must state who may read and administer them.",
    "repartitioning": "The number of partitions can be raised.",
    "event_owner_selector_authz": "Events with an owner are published and delivered only with a right to that owner.",
    "token_subscriptions_iteration": "Lists of subscriptions are paged by tokens.",
    "return_body_on_create_update_event_type": "A changed event type is in the answer.",
    "validate_event_type_owning_application": "Applications that own event types must be in the configuration.",
    "validate_subscription_owning_application": "Applications that own subscriptions must be in the configuration.",
    "force_data_lake_annotations": "Event types must have annotations for the data lake.",
}
"""The effect of each feature that is on; features that are left out do nothing."""
JOBS_SHOWN = 20
"""The most jobs of each kind that are shown."""
_UNPROCESSABLE = 422
_ENTRY = "/settings/blacklist/{blacklist_type}/{name}"


def _refused(title: str, detail: str) -> ApiProblem:
    return ApiProblem(_UNPROCESSABLE, {"title": title, "detail": detail})


# --- Settings ---


def _settings(visit: Visit) -> dict[str, Any]:
    blacklist = visit.api.attempt("/settings/blacklist")
    admins = visit.api.attempt("/settings/admins")
    return {
        "admins": admins,
        "lines": {kind: "\n".join(map(_line, admins.get(kind, ()))) for kind in KINDS},
        "features": visit.api.attempt("/settings/features"),
        "effects": FEATURES,
        "blacklist": blacklist,
        "blocked": any(names for lists in blacklist.values() for names in lists.values()),
        "kinds": KINDS,
        "lists": {kind: {"path": path[:2], "title": path[2]} for kind, path in BLACKLIST.items()},
    }


def _switch(visit: Visit) -> Done:
    feature, enabled = visit.form.get("feature", ""), visit.form.get("enabled") == "true"
    visit.api.send("POST", "/settings/features", body={"feature": feature, "enabled": enabled})
    return Done(f"{feature} is switched {'on' if enabled else 'off'}")


def _set_admins(visit: Visit) -> Done:
    lines = {kind: [line.strip() for line in visit.typed(kind).split("\n")] for kind in KINDS}
    body = {kind: [_attribute(line) for line in found if line] for kind, found in lines.items()}
    if "seen" in visit.form:
        visit.refuse_changed(visit.api.get("/settings/admins"), "The administrators were changed.")
    visit.api.send("POST", "/settings/admins", body=body)
    return Done("The administrators are changed")


def _line(attribute: Mapping[str, str]) -> str:
    """An attribute as people write it; as JSON if the text would be read as another one, or as none."""
    text = f"{attribute['data_type']}:{attribute['value']}"
    is_plain = text.isprintable() and " " not in text and ":" not in attribute["data_type"]
    return text if is_plain and all(attribute.values()) and text[0] != "{" else exact_json.encode(attribute).decode()


def _attribute(text: str) -> dict[str, str]:
    if text.startswith("{"):
        try:
            found = exact_json.decode_typed(text)
        except ValueError as ex:
            raise _refused("Not changed", f"{text} is no attribute: {ex}") from ex
        if found.keys() != {"data_type", "value"} or not all(isinstance(each, str) for each in found.values()):
            raise _refused("Not changed", f"{text} is no attribute: it has the texts data_type and value.")
        return dict(found)
    data_type, colon, value = text.partition(":")
    if not colon or not data_type or not value or len(text.split()) > 1:
        detail = "write data_type:value, such as service:shop, and one with spaces as JSON."
        raise _refused("Not changed", f"{text} is no attribute: {detail}")
    return {"data_type": data_type, "value": value}


def _block(visit: Visit) -> Done:
    kind, name = visit.form.get("kind", ""), visit.form.get("name", "").strip()
    if not name:
        raise _refused("Not blocked", "Name an application or event type.")
    visit.api.send("PUT", path_of("settings", "blacklist", kind, name))
    return Done(f"{name} is blocked")


def _unblock(visit: Visit) -> Done:
    kind, name = visit.form.get("kind", ""), visit.form.get("name", "")
    visit.api.send("DELETE", path_of("settings", "blacklist", kind, name))
    return Done(f"{name} is not blocked any more")


# --- Storages ---


def _storages(visit: Visit) -> dict[str, Any]:
    found = visit.api.attempt("/storages")
    return {"items": found} if isinstance(found, list) else found


def _add_storage(visit: Visit) -> Done:
    body: dict[str, Any] = {"id": visit.form.get("id", ""), "storage_type": visit.form.get("storage_type", "")}
    if text := visit.form.get("kafka_configuration", "").strip():
        try:
            body["kafka_configuration"] = exact_json.decode_typed(text)
        except ValueError as ex:
            raise _refused("Not added", f"The configuration is not JSON: {ex}") from ex
    elif body["storage_type"] == "kafka":
        raise _refused("Not added", "A storage of the type kafka needs the configuration of Kafka.")
    visit.api.send("POST", "/storages", body=body)
    return Done(f"The storage {body['id']} can be used")


def _set_default(visit: Visit) -> Done:
    storage = visit.form.get("id", "")
    visit.api.send("PUT", path_of("storages", "default", storage))
    return Done(f"New event types begin in {storage}")


def _delete_storage(visit: Visit) -> Done:
    storage = visit.form.get("id", "")
    if visit.form.get("name") != storage:
        raise _refused("Not deleted", f"Type the id {storage} to delete the storage.")
    visit.api.send("DELETE", path_of("storages", storage))
    return Done(f"The storage {storage} is deleted")


# --- Jobs ---


def _jobs(visit: Visit) -> dict[str, Any]:
    jobs = visit.api.get("/jobs")["items"]
    return {
        "backups": [job for job in jobs if job["kind"] == "backup"][:JOBS_SHOWN],
        "archives": [job for job in jobs if job["kind"] == "archive"][:JOBS_SHOWN],
        "rebuilds": visit.api.get("/rebuilds")["items"][:JOBS_SHOWN],
    }


SETTINGS = ConsolePage(
    "/settings",
    "settings.html.jinja",
    "Settings",
    _settings,
    {
        "switch": PageAction(_switch, Right("broker", "WRITE", "POST /settings/features")),
        "admins": PageAction(_set_admins, Right("broker", "ADMIN", "POST /settings/admins")),
        "block": PageAction(_block, Right("broker", "WRITE", f"PUT {_ENTRY}")),
        "unblock": PageAction(_unblock, Right("broker", "WRITE", f"DELETE {_ENTRY}")),
    },
)
STORAGES = ConsolePage(
    "/storages",
    "storages.html.jinja",
    "Storages",
    _storages,
    {
        "add": PageAction(_add_storage, Right("broker", "WRITE", "POST /storages")),
        "default": PageAction(_set_default, Right("broker", "WRITE", "PUT /storages/default/{storage_id}")),
        "delete": PageAction(_delete_storage, Right("broker", "WRITE", "DELETE /storages/{storage_id}")),
    },
)
JOBS = ConsolePage("/jobs", "jobs.html.jinja", "Jobs", _jobs)
