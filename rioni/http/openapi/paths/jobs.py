"""OpenAPI operations of jobs and of rebuilds."""

from rioni.http.bodies import body_schemas
from rioni.http.openapi.builders import Json, answer, body, listed, literal, operation, path, query
from rioni.wire import administration


# --- OpenAPI operations of jobs ---

JOBS = "Jobs"
_ID = "3c0e54cf-6a52-4f7d-9c65-31f3f4d0e7aa"
_KIND = literal("JobKind")
_TOLD: Json = {
    "kind": "archive",
    "name": "s3://lake/events",
    "state": "running",
    "phase": "order.created",
    "done": 250_000,
    "total": 1_000_000,
    "detail": "",
}
_EXAMPLE: Json = _TOLD | {
    "id": _ID,
    "started_at": "2026-11-20T10:00:00.000Z",
    "updated_at": "2026-11-20T10:00:07.000Z",
    "client": "lake",
}

_JOB_PATHS: Json = {
    "/jobs": {
        "get": operation(
            JOBS,
            "List archives and backups",
            {
                200: answer(
                    "The last 100 of each kind, the most recently updated first.",
                    listed("Jobs", administration.Job),
                    {"items": [_EXAMPLE]},
                )
            },
            description="What `rioni archive` and `rioni backup` do, and how far they are. For administrators and "
            "readers of the broker, and those whom the setting `audit_readers` names.",
            parameters=[query("kind", "Only jobs of this kind.", _KIND, "archive")],
            problems={400: "There is no such kind.", 403: ""},
        )
    },
    "/jobs/{job_id}": {
        "put": operation(
            JOBS,
            "Report an archive",
            {200: answer("The job as it is remembered.", administration.Job, _EXAMPLE)},
            description="`rioni archive` does so every few seconds. One that has reported nothing for 90 seconds is "
            "shown as interrupted.",
            parameters=[path("job_id", "A UUID that the client has chosen.", _ID)],
            body=body(body_schemas.JOB, _TOLD),
            problems={409: "Another client reports a job of this id.", 422: ""},
        )
    },
}


# --- OpenAPI operations of rebuilds ---

REBUILDS = "Rebuilds"
_REBUILD_ID = "0d9a5e1c-33a1-4b6b-8d6f-9e4f4c0f2a11"
_REBUILD_EXAMPLE: Json = {
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

_REBUILD_PATHS: Json = {
    "/rebuilds": {
        "get": operation(
            REBUILDS,
            "List the rebuilds",
            {
                200: answer(
                    "The last 100, newest first.",
                    listed("Rebuilds", administration.Rebuild),
                    {"items": [_REBUILD_EXAMPLE]},
                )
            },
            description=f"Rebuilds of the read models by `rioni rebuild`. {_READERS}",
            problems=[403],
        )
    },
    "/rebuilds/{rebuild_id}": {
        "get": operation(
            REBUILDS,
            "Get a rebuild",
            {200: answer("Its progress, or its end.", administration.Rebuild, _REBUILD_EXAMPLE)},
            description=f"The phase, and how much of it is done. {_READERS}",
            parameters=[path("rebuild_id", "The id of the rebuild.", _REBUILD_ID)],
            problems={403: "", 404: "There is no such rebuild, or it is forgotten."},
        )
    },
}


PATHS: Json = _JOB_PATHS | _REBUILD_PATHS
