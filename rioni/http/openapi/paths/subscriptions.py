"""OpenAPI operations of subscriptions, their streams and their cursors."""

from rioni.domain.streaming.messages import Reason
from rioni.http.bodies import body_schemas
from rioni.http.openapi.builders import (
    FLAG,
    PAGE,
    STRING,
    Json,
    answer,
    array,
    body,
    header,
    listed,
    operation,
    paged,
    path,
    queries,
    query,
)
from rioni.http.openapi.paths.events import BATCH, LAST_EVENT, streamed
from rioni.wire import events, subscriptions
from rioni.wire.json_schema import parameters


SUBSCRIPTIONS, CONSUMING = "Subscriptions", "Consuming"

_ID = "038fc871-1d2c-4e2e-aa29-1579e8f2e71f"
_STREAM_ID = "b75c3102-98a4-4385-a5fd-b96f1d7872f2"
_OPEN_STREAM = path("stream_id", "The stream, as `X-Nakadi-StreamId` named it.", _STREAM_ID)
_SUBSCRIPTION_ID = path("subscription_id", "The id of the subscription.", _ID)
_TIME = "2026-11-20T10:00:00.000Z"
_SUBMITTED = {"owning_application": "warehouse", "event_types": ["order.created"], "read_from": "begin"}
_SUBSCRIPTION: Json = {
    "id": _ID,
    **_SUBMITTED,
    "consumer_group": "default",
    "initial_cursors": [],
    "created_at": _TIME,
    "updated_at": _TIME,
    "authorization": None,
    "annotations": {},
    "labels": {},
}
_CURSOR = {"partition": "0", "offset": "001-0001-000000000000000542", "event_type": "order.created"}
_COMMITTED = _CURSOR | {"cursor_token": "b75c3102-98a4-4385-a5fd-b96f1d7872f2"}
_STREAM_PARAMETERS = parameters(events.SubscriptionStreamParameters)
_STREAM_QUERY = queries({name: each for name, each in _STREAM_PARAMETERS.items() if name != "partitions"})
_STREAM_BODY: Json = {"title": "StreamParameters", "type": "object", "properties": _STREAM_PARAMETERS}
_STREAM = {
    200: streamed(BATCH | {"cursor": _COMMITTED, "info": {"debug": "Stream started"}}, "X-Nakadi-StreamId"),
}
_STREAM_PROBLEMS = {
    403: "",
    404: "",
    409: "All partitions have their streams already, or cursors are being reset.",
    422: "",
    429: "The client has too many streams.",
}
_COMMIT_EXAMPLE = {"items": [{"cursor": _COMMITTED, "result": "outdated"}]}
_STATISTICS = {
    "partition": "0",
    "state": "assigned",
    "unconsumed_events": 4,
    "stream_id": "b75c3102-98a4-4385-a5fd-b96f1d7872f2",
    "assignment_type": "auto",
}

_ENDED_EXAMPLE = {
    "client": "warehouse",
    "reason": Reason.COMMIT_TIMEOUT.label,
    "count": 3,
    "first_at": _TIME,
    "last_at": _TIME,
}

_EVALUATED = {"matches": True, "parts": [{"expression": "event.total > 100", "value": True}]}

PATHS: Json = {
    "/filter-evaluations": {
        "post": operation(
            SUBSCRIPTIONS,
            "Try a filter on events",
            {
                200: answer(
                    "Whether each event matches, with the value of each part of the filter.",
                    subscriptions.FilterEvaluations,
                    {"items": [_EVALUATED], "warnings": []},
                )
            },
            description="Parts are what `||` joins at the top of the expression, or else what `&&` joins. With "
            "`event_types` the filter is compared with their schemas, as for a new subscription. Nothing is stored. "
            "At most 20 events and 100 event types.",
            body=body(body_schemas.FILTER_EVALUATION, {"filter": "event.total > 100", "events": [{"total": 120}]}),
            problems=(404, 422),
        ),
    },
    "/stream-tickets": {
        "post": operation(
            SUBSCRIPTIONS,
            "Get a ticket for a stream in a browser",
            {
                201: answer(
                    "A ticket for the query parameter `ticket` of the stream, which it opens once, within a minute.",
                    events.StreamTicket,
                    {
                        "ticket": "7Jm2c0…",
                        "path": f"/subscriptions/{_ID}/events",
                        "expires_at": "2026-11-20T10:01:00.000Z",
                    },
                )
            },
            description="For `EventSource`, which can't send a token. Whether the caller may read the stream is "
            "checked when it is opened.",
            body=body(body_schemas.STREAM_TICKET, {"path": f"/subscriptions/{_ID}/events"}),
            problems=(422,),
        ),
    },
    "/subscriptions": {
        "get": operation(
            SUBSCRIPTIONS,
            "List subscriptions",
            {
                200: answer(
                    "One page, newest first, or by id if a `token` is used.",
                    paged("SubscriptionPage", subscriptions.ListedSubscription),
                    {"items": [_SUBSCRIPTION], "_links": {"next": {"href": f"/subscriptions?token=F{_ID}&limit=20"}}},
                )
            },
            parameters=[
                query("owning_application", "Only those of this application.", example="warehouse"),
                query(
                    "event_type",
                    "Only those to this event type; may be given more than once, or hold a list separated by commas, "
                    "for those to all of them.",
                    array(STRING),
                    ["order.created"],
                ),
                query("reader", "Only those whose readers list exactly this `data_type:value`.", example="user:jane"),
                *PAGE,
                query("token", "A page token, from a link; `new` for the first page.", example="new"),
                query("show_status", "Show who reads which partition.", FLAG, example=True),
            ],
        ),
        "post": operation(
            SUBSCRIPTIONS,
            "Create a subscription",
            {
                200: answer(
                    "There is one of the same application, group and event types.",
                    subscriptions.Subscription,
                    _SUBSCRIPTION,
                    headers=("Location", "Warning"),
                ),
                201: answer(
                    "The subscription exists.",
                    subscriptions.Subscription,
                    _SUBSCRIPTION,
                    headers=("Location", "Content-Location", "Warning"),
                ),
            },
            body=body(body_schemas.SUBSCRIPTION, _SUBMITTED),
            problems={403: "", 422: ""},
        ),
    },
    "/subscriptions/{subscription_id}": {
        "get": operation(
            SUBSCRIPTIONS,
            "Show a subscription",
            {200: answer("The subscription.", subscriptions.Subscription, _SUBSCRIPTION)},
            parameters=[_SUBSCRIPTION_ID],
            problems=(404,),
        ),
        "put": operation(
            SUBSCRIPTIONS,
            "Change a subscription",
            {204: answer("It is changed.", headers=("Warning",))},
            description="Authorization, annotations, labels and filter can change; everything else must be as it is.",
            parameters=[_SUBSCRIPTION_ID],
            body=body(body_schemas.SUBSCRIPTION, _SUBMITTED),
            problems=(403, 404, 422),
        ),
        "delete": operation(
            SUBSCRIPTIONS,
            "Delete a subscription",
            {204: answer("It is gone, with its cursors; its streams end.")},
            parameters=[_SUBSCRIPTION_ID],
            problems=(403, 404),
        ),
    },
    "/subscriptions/{subscription_id}/stats": {
        "get": operation(
            SUBSCRIPTIONS,
            "Show the statistics of a subscription",
            {
                200: answer(
                    "Who reads which partition, and how many events are unconsumed.",
                    listed("SubscriptionStatistics", subscriptions.SubscriptionStatistics),
                    {"items": [{"event_type": "order.created", "partitions": [_STATISTICS]}]},
                )
            },
            parameters=[
                _SUBSCRIPTION_ID,
                query("show_time_lag", "Show the lag in seconds, too.", FLAG, example=True),
                query(
                    "show_initial_lag",
                    "Show the lag of a subscription that was never streamed, too.",
                    FLAG,
                    example=True,
                ),
            ],
            problems=(403, 404),
        ),
    },
    "/subscriptions/{subscription_id}/ended-streams": {
        "get": operation(
            SUBSCRIPTIONS,
            "Show why streams ended",
            {
                200: answer(
                    "Ended streams by client and reason, those that ended last first.",
                    listed("EndedStreamsList", subscriptions.EndedStreams),
                    {"items": [_ENDED_EXAMPLE]},
                )
            },
            description="Forgotten after 90 days without another one. Ends of the last second may be missing, and "
            "those of workers that were killed.",
            parameters=[_SUBSCRIPTION_ID],
            problems=(404,),
        ),
    },
    "/subscriptions/{subscription_id}/events": {
        "get": operation(
            CONSUMING,
            "Stream a subscription",
            _STREAM,
            description="The broker divides the partitions among the streams of a subscription, and remembers which "
            "events are committed.",
            parameters=[_SUBSCRIPTION_ID, LAST_EVENT, *_STREAM_QUERY],
            problems=_STREAM_PROBLEMS,
        ),
        "post": operation(
            CONSUMING,
            "Stream a subscription with parameters in a body",
            _STREAM,
            description="As with `GET`; here the client may choose its partitions.",
            parameters=[_SUBSCRIPTION_ID, LAST_EVENT],
            body=body(_STREAM_BODY, {"batch_limit": 100, "max_uncommitted_events": 1000}),
            problems=_STREAM_PROBLEMS,
        ),
    },
    "/subscriptions/{subscription_id}/streams/{stream_id}": {
        "delete": operation(
            CONSUMING,
            "Close a stream",
            {204: answer("It is closed: its slot and its partitions are free.")},
            description="For clients that can't close their connection. The stream ends with a batch that says so; "
            "what it had not committed is delivered again.",
            parameters=[_SUBSCRIPTION_ID, _OPEN_STREAM],
            problems=(403, 404),
        ),
    },
    "/subscriptions/{subscription_id}/streams/{stream_id}/failures": {
        "post": operation(
            CONSUMING,
            "Explain failures",
            {204: answer("The reasons are recorded.")},
            description="For clients that can't process events of their stream, before they end it: a dead letter that "
            "is made of such an event has the reason. A partition keeps the last one, until its event is committed. "
            "Each item has all members; a reason has 1 to 1,000 characters.",
            parameters=[_SUBSCRIPTION_ID, _OPEN_STREAM],
            body=body(body_schemas.FAILURES, {"items": [_CURSOR | {"reason": "ValueError: no such customer"}]}),
            problems=(403, 404, 422),
        ),
    },
    "/subscriptions/{subscription_id}/cursors": {
        "get": operation(
            CONSUMING,
            "List committed cursors",
            {
                200: answer(
                    "The cursors; none until the subscription was first streamed.",
                    listed("CommittedCursors", events.CommittedCursor),
                    {"items": [_COMMITTED]},
                )
            },
            parameters=[_SUBSCRIPTION_ID],
            problems=(403, 404),
        ),
        "post": operation(
            CONSUMING,
            "Commit cursors",
            {
                200: answer(
                    "Some cursors were not newer than what was committed.",
                    listed("CommitResults", events.CommitResult),
                    _COMMIT_EXAMPLE,
                ),
                204: answer("All cursors are committed."),
            },
            description="A committed cursor means that its event and all before it in the partition are processed. "
            "Each item has all members.",
            parameters=[
                _SUBSCRIPTION_ID,
                header("X-Nakadi-StreamId", "The stream that the cursors came from.", example=_ID, required=True),
            ],
            body=body(body_schemas.CURSORS, {"items": [_COMMITTED]}),
            problems=(403, 404, 422),
        ),
        "patch": operation(
            CONSUMING,
            "Reset cursors",
            {204: answer("All streams have ended, and the next ones begin after these cursors.")},
            description="Cursors may be given as offset, as `BEGIN` or `END`, or as a timestamp, and be shifted. "
            "An item without `partition`, or also without `event_type`, means all partitions, if the place "
            "has a meaning in all of them. Without items the subscription is initialised, and streams continue.",
            parameters=[_SUBSCRIPTION_ID],
            body=body(body_schemas.PLACES, {"items": [_CURSOR, {"timestamp": _TIME, "shift": -100}]}),
            problems={403: "", 404: "", 409: "A reset is in progress.", 422: ""},
        ),
    },
}
