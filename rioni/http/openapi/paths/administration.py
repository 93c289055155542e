"""OpenAPI operations of settings, storages and the caller's rights; of jobs and rebuilds."""

from rioni.http.bodies import body_schemas
from rioni.http.openapi.builders import Json, all_of, answer, body, listed, literal, operation, path, query
from rioni.wire import access, administration


_ATTRIBUTE = {"data_type": "service", "value": "stups_nakadi"}
_ADMINS = {"admins": [_ATTRIBUTE], "readers": [_ATTRIBUTE], "writers": [_ATTRIBUTE]}
_BLACKLIST_ENTRY = (
    path(
        "blacklist_type",
        "Whom to block: producers or consumers, by application or event type; in any case.",
        "CONSUMER_APP",
        literal("BlacklistType"),
    ),
    path("name", "The application or event type.", "shop"),
)
_BLOCKED = {"event_types": [], "apps": ["shop"]}
_STORAGE = {"id": "default", "storage_type": "embedded", "default": True}
_FEATURE = {"feature": "disable_event_type_creation", "enabled": True}

_SUBSCRIPTION_ID = "038fc871-1d2c-4e2e-aa29-1579e8f2e71f"


_SETTINGS: Json = {
    "GET /rights": operation(
        "Show what the caller may do",
        answer(
            "Rights to the broker, and to what was named, and each operation on them with what refuses it "
            "now, if anything does. Other features, and the owners of single events, may still "
            "refuse a request.",
            administration.Rights,
            {
                "subject": "jane",
                "broker": ["READ", "HISTORY"],
                "event_type": ["READ", "ADMIN"],
                "operations": {
                    "GET /event-types/{name}/events": "allowed",
                    "POST /event-types/{name}/events": "blacklist",
                    "POST /settings/features": "right",
                },
            },
        ),
        parameters=[
            query("event_type", "Also the rights to this event type.", example="order.created"),
            query("subscription_id", "Also the rights to this subscription.", example=_SUBSCRIPTION_ID),
        ],
        problems=(404,),
    ),
    "GET /settings/admins": operation(
        "List administrators", answer("Who administers the broker.", access.Admins, _ADMINS)
    ),
    "POST /settings/admins": operation(
        "Name administrators",
        answer("Who administers the broker from now on.", access.Admins, _ADMINS),
        description="The administrator of the broker's configuration remains one.",
        body=body(body_schemas.ADMINS, _ADMINS),
    ),
    "GET /settings/blacklist": operation(
        "List what is blocked",
        answer(
            "Applications and event types.",
            administration.Blacklist,
            {"producers": {"event_types": [], "apps": []}, "consumers": _BLOCKED},
        ),
    ),
    "PUT /settings/blacklist/{blacklist_type}/{name}": operation(
        "Block an application or event type", {204: answer("It is blocked.")}, parameters=_BLACKLIST_ENTRY, never=(404,)
    ),
    "DELETE /settings/blacklist/{blacklist_type}/{name}": operation(
        "Unblock an application or event type",
        {204: answer("It is not blocked.")},
        parameters=_BLACKLIST_ENTRY,
        never=(404,),
    ),
    "GET /settings/features": operation(
        "List features", answer("All features.", listed("Features", administration.Feature), {"items": [_FEATURE]})
    ),
    "POST /settings/features": operation(
        "Switch a feature",
        {204: answer("The feature is switched.")},
        body=body(body_schemas.FEATURE, _FEATURE),
        never=(422,),
    ),
}

_STORAGES: Json = {
    "GET /storages": operation(
        "List storages", answer("The storages by id.", all_of(administration.Storage), [_STORAGE])
    ),
    "POST /storages": operation(
        "Add a storage",
        {201: answer("The storage can be used.", administration.Storage, _STORAGE | {"id": "second"})},
        body=body(body_schemas.STORAGE, {"id": "second", "storage_type": "embedded"}),
        problems={409: "There is a storage of this id."},
    ),
    "PUT /storages/default/{storage_id}": operation(
        "Choose the default storage", answer("New event types begin in this storage.", administration.Storage, _STORAGE)
    ),
    "GET /storages/{storage_id}": operation("Show a storage", answer("The storage.", administration.Storage, _STORAGE)),
    "DELETE /storages/{storage_id}": operation(
        "Delete a storage",
        {204: answer("The storage is gone.")},
        parameters=[path("storage_id", "The id of the storage.", "second")],
        problems={400: "The request can't be read, or the storage is still used."},
    ),
}

# --- Jobs and rebuilds ---

_JOB_ID = "3c0e54cf-6a52-4f7d-9c65-31f3f4d0e7aa"
_KIND = literal("JobKind")
_REPORT: Json = {
    "kind": "archive",
    "name": "s3://lake/events",
    "state": "running",
    "phase": "order.created",
    "done": 250_000,
    "total": 1_000_000,
    "detail": "",
}
_JOB: Json = _REPORT | {
    "id": _JOB_ID,
    "started_at": "2026-11-20T10:00:00.000Z",
    "updated_at": "2026-11-20T10:00:07.000Z",
    "client": "lake",
}

_JOBS: Json = {
    "GET /jobs": operation(
        "List archives and backups",
        answer(
            "The last 100 of each kind, the most recently updated first.",
            listed("Jobs", administration.Job),
            {"items": [_JOB]},
        ),
        description="What `rioni archive` and `rioni backup` do, and how far they are. For administrators and "
        "readers of the broker, and those whom the setting `audit_readers` names.",
        parameters=[query("kind", "Only jobs of this kind.", _KIND, "archive")],
        problems={400: "There is no such kind."},
    ),
    "PUT /jobs/{job_id}": operation(
        "Report an archive",
        answer("The job as it is remembered.", administration.Job, _JOB),
        description="`rioni archive` does so every few seconds. One that has reported nothing for 90 seconds is "
        "shown as interrupted.",
        body=body(body_schemas.JOB, _REPORT),
        problems={409: "Another client reports a job of this id."},
        never=(404,),
    ),
}


_REBUILD_ID = "0d9a5e1c-33a1-4b6b-8d6f-9e4f4c0f2a11"
_REBUILD: Json = {
    "id": _REBUILD_ID,
    "state": "running",
    "started_at": "2026-11-20T10:00:00.000Z",
    "updated_at": "2026-11-20T10:00:07.000Z",
    "phase": "fold",
    "done": 250_000,
    "total": 1_000_000,
    "detail": "",
    "into": None,
    "tables": ["audit_log", "states"],
    "position": 1_000_000,
    "fold": 1,
}
_READERS = "For administrators and readers of the broker, and those whom the setting `audit_readers` names."

_REBUILDS: Json = {
    "GET /rebuilds": operation(
        "List the rebuilds",
        answer("The last 100, newest first.", listed("Rebuilds", administration.Rebuild), {"items": [_REBUILD]}),
        description=f"Rebuilds of the read models by `rioni rebuild`. {_READERS}",
    ),
    "GET /rebuilds/{rebuild_id}": operation(
        "Get a rebuild",
        answer("Its progress, or its end.", administration.Rebuild, _REBUILD),
        description=f"The phase, and how much of it is done. {_READERS}",
        problems={404: "There is no such rebuild, or it is forgotten."},
    ),
}

OPERATIONS: Json = {"Settings": _SETTINGS, "Storages": _STORAGES, "Jobs": _JOBS, "Rebuilds": _REBUILDS}
