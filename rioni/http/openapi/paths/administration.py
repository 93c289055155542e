"""OpenAPI operations of settings and storages, and of the caller's rights."""

from rioni.http.bodies import body_schemas
from rioni.http.openapi.builders import Json, all_of, answer, body, listed, literal, operation, path, query
from rioni.wire import access, administration


SETTINGS, STORAGES = "Settings", "Storages"

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
_STORAGE_ID = path("storage_id", "The id of the storage.", "default")
_STORAGE = {"id": "default", "storage_type": "embedded", "default": True}
_FEATURE = {"feature": "disable_event_type_creation", "enabled": True}

_SUBSCRIPTION_ID = "038fc871-1d2c-4e2e-aa29-1579e8f2e71f"


PATHS: Json = {
    "/rights": {
        "get": operation(
            SETTINGS,
            "Show what the caller may do",
            {
                200: answer(
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
                )
            },
            parameters=[
                query("event_type", "Also the rights to this event type.", example="order.created"),
                query("subscription_id", "Also the rights to this subscription.", example=_SUBSCRIPTION_ID),
            ],
            problems=(404,),
        ),
    },
    "/settings/admins": {
        "get": operation(
            SETTINGS,
            "List administrators",
            {200: answer("Who administers the broker.", access.Admins, _ADMINS)},
            problems=(403,),
        ),
        "post": operation(
            SETTINGS,
            "Name administrators",
            {200: answer("Who administers the broker from now on.", access.Admins, _ADMINS)},
            description="The administrator of the broker's configuration remains one.",
            body=body(body_schemas.ADMINS, _ADMINS),
            problems=(403, 422),
        ),
    },
    "/settings/blacklist": {
        "get": operation(
            SETTINGS,
            "List what is blocked",
            {
                200: answer(
                    "Applications and event types.",
                    administration.Blacklist,
                    {"producers": {"event_types": [], "apps": []}, "consumers": _BLOCKED},
                )
            },
            problems=(403,),
        ),
    },
    "/settings/blacklist/{blacklist_type}/{name}": {
        "put": operation(
            SETTINGS,
            "Block an application or event type",
            {204: answer("It is blocked.")},
            parameters=_BLACKLIST_ENTRY,
            problems=(403,),
        ),
        "delete": operation(
            SETTINGS,
            "Unblock an application or event type",
            {204: answer("It is not blocked.")},
            parameters=_BLACKLIST_ENTRY,
            problems=(403,),
        ),
    },
    "/settings/features": {
        "get": operation(
            SETTINGS,
            "List features",
            {
                200: answer(
                    "All features.",
                    listed("Features", administration.Feature),
                    {"items": [_FEATURE]},
                )
            },
            problems=(403,),
        ),
        "post": operation(
            SETTINGS,
            "Switch a feature",
            {204: answer("The feature is switched.")},
            body=body(body_schemas.FEATURE, _FEATURE),
            problems=(403,),
        ),
    },
    "/storages": {
        "get": operation(
            STORAGES,
            "List storages",
            {200: answer("The storages by id.", all_of(administration.Storage), [_STORAGE])},
            problems=(403,),
        ),
        "post": operation(
            STORAGES,
            "Add a storage",
            {201: answer("The storage can be used.", administration.Storage, _STORAGE | {"id": "second"})},
            body=body(body_schemas.STORAGE, {"id": "second", "storage_type": "embedded"}),
            problems={403: "", 409: "There is a storage of this id.", 422: ""},
        ),
    },
    "/storages/default/{storage_id}": {
        "put": operation(
            STORAGES,
            "Choose the default storage",
            {200: answer("New event types begin in this storage.", administration.Storage, _STORAGE)},
            parameters=[_STORAGE_ID],
            problems=(403, 404),
        ),
    },
    "/storages/{storage_id}": {
        "get": operation(
            STORAGES,
            "Show a storage",
            {200: answer("The storage.", administration.Storage, _STORAGE)},
            parameters=[_STORAGE_ID],
            problems=(403, 404),
        ),
        "delete": operation(
            STORAGES,
            "Delete a storage",
            {204: answer("The storage is gone.")},
            parameters=[_STORAGE_ID | {"example": "second"}],
            problems={400: "The request can't be read, or the storage is still used.", 403: "", 404: ""},
        ),
    },
}
