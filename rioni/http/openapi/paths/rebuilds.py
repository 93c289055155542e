"""OpenAPI operations of rebuilds."""

from rioni.http.openapi.builders import INTEGER, STRING, Json, answer, array, one_of, operation, path, structure


REBUILDS = "Rebuilds"
_ID = "0d9a5e1c-33a1-4b6b-8d6f-9e4f4c0f2a11"
_REBUILD = structure(
    {
        "id": STRING,
        "state": one_of("RebuildState", ("running", "done", "failed", "interrupted")),
        "started_at": STRING,
        "updated_at": STRING,
        "phase": STRING,
        "done": INTEGER,
        "total": INTEGER,
        "detail": STRING,
        "into": {"type": ["string", "null"]},
        "tables": array(STRING),
        "position": INTEGER,
        "fold": INTEGER,
    },
    title="Rebuild",
)
_EXAMPLE: Json = {
    "id": _ID,
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

PATHS: Json = {
    "/rebuilds": {
        "get": operation(
            REBUILDS,
            "List the rebuilds",
            {
                200: answer(
                    "The last 100, newest first.",
                    structure({"items": array(_REBUILD)}, title="Rebuilds"),
                    {"items": [_EXAMPLE]},
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
            {200: answer("Its progress, or its end.", _REBUILD, _EXAMPLE)},
            description=f"The phase, and how much of it is done. {_READERS}",
            parameters=[path("rebuild_id", "The id of the rebuild.", _ID)],
            problems={403: "", 404: "There is no such rebuild, or it is forgotten."},
        )
    },
}
