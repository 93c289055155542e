"""OpenAPI operations of subscriptions, their streams, their cursors and their dead letters."""

from rioni.domain.streaming.messages import Reason
from rioni.domain.subscriptions.dead_letters import LIST_DEFAULT, LIST_MAX
from rioni.http.bodies import body_schemas
from rioni.http.openapi.builders import (
    BOOLEAN,
    FLAG,
    INTEGER,
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
    queries,
    query,
)
from rioni.http.openapi.paths.events import BATCH, LAST_EVENT, streamed
from rioni.wire import events, subscriptions
from rioni.wire.json_schema import parameters


_ID = "038fc871-1d2c-4e2e-aa29-1579e8f2e71f"
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
_STREAM = {200: streamed(BATCH | {"cursor": _COMMITTED, "info": {"debug": "Stream started"}}, "X-Nakadi-StreamId")}
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

_SUBSCRIPTIONS: Json = {
    "POST /filter-evaluations": operation(
        "Try a filter on events",
        answer(
            "Whether each event matches, with the value of each part of the filter.",
            subscriptions.FilterEvaluations,
            {"items": [_EVALUATED], "warnings": []},
        ),
        description="Parts are what `||` joins at the top of the expression, or else what `&&` joins. With "
        "`event_types` the filter is compared with their schemas, as for a new subscription. Nothing is stored. "
        "At most 20 events and 100 event types.",
        body=body(body_schemas.FILTER_EVALUATION, {"filter": "event.total > 100", "events": [{"total": 120}]}),
        problems=(404,),
    ),
    "POST /stream-tickets": operation(
        "Get a ticket for a stream in a browser",
        {
            201: answer(
                "A ticket for the query parameter `ticket` of the stream, which it opens once, within a minute.",
                events.StreamTicket,
                {"ticket": "7Jm2c0…", "path": f"/subscriptions/{_ID}/events", "expires_at": "2026-11-20T10:01:00.000Z"},
            )
        },
        description="For `EventSource`, which can't send a token. Whether the caller may read the stream is "
        "checked when it is opened.",
        body=body(body_schemas.STREAM_TICKET, {"path": f"/subscriptions/{_ID}/events"}),
    ),
    "GET /subscriptions": operation(
        "List subscriptions",
        answer(
            "One page, newest first, or by id if a `token` is used.",
            paged("SubscriptionPage", subscriptions.ListedSubscription),
            {"items": [_SUBSCRIPTION], "_links": {"next": {"href": f"/subscriptions?token=F{_ID}&limit=20"}}},
        ),
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
    "POST /subscriptions": operation(
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
    ),
    "GET /subscriptions/{subscription_id}": operation(
        "Show a subscription", answer("The subscription.", subscriptions.Subscription, _SUBSCRIPTION)
    ),
    "PUT /subscriptions/{subscription_id}": operation(
        "Change a subscription",
        {204: answer("It is changed.", headers=("Warning",))},
        description="Authorization, annotations, labels and filter can change; everything else must be as it is.",
        body=body(body_schemas.SUBSCRIPTION, _SUBMITTED),
    ),
    "DELETE /subscriptions/{subscription_id}": operation(
        "Delete a subscription", {204: answer("It is gone, with its cursors; its streams end.")}
    ),
    "GET /subscriptions/{subscription_id}/stats": operation(
        "Show the statistics of a subscription",
        answer(
            "Who reads which partition, and how many events are unconsumed.",
            listed("SubscriptionStatistics", subscriptions.SubscriptionStatistics),
            {"items": [{"event_type": "order.created", "partitions": [_STATISTICS]}]},
        ),
        parameters=[
            query("show_time_lag", "Show the lag in seconds, too.", FLAG, example=True),
            query(
                "show_initial_lag", "Show the lag of a subscription that was never streamed, too.", FLAG, example=True
            ),
        ],
    ),
    "GET /subscriptions/{subscription_id}/ended-streams": operation(
        "Show why streams ended",
        answer(
            "Ended streams by client and reason, those that ended last first.",
            listed("EndedStreamsList", subscriptions.EndedStreams),
            {"items": [_ENDED_EXAMPLE]},
        ),
        description="Forgotten after 90 days without another one. Ends of the last second may be missing, and "
        "those of workers that were killed.",
    ),
}

_CONSUMING: Json = {
    "GET /subscriptions/{subscription_id}/events": operation(
        "Stream a subscription",
        _STREAM,
        description="The broker divides the partitions among the streams of a subscription, and remembers which "
        "events are committed.",
        parameters=[LAST_EVENT, *_STREAM_QUERY],
        problems=_STREAM_PROBLEMS,
    ),
    "POST /subscriptions/{subscription_id}/events": operation(
        "Stream a subscription with parameters in a body",
        _STREAM,
        description="As with `GET`; here the client may choose its partitions.",
        parameters=[LAST_EVENT],
        body=body(_STREAM_BODY, {"batch_limit": 100, "max_uncommitted_events": 1000}),
        problems=_STREAM_PROBLEMS,
    ),
    "DELETE /subscriptions/{subscription_id}/streams/{stream_id}": operation(
        "Close a stream",
        {204: answer("It is closed: its slot and its partitions are free.")},
        description="For clients that can't close their connection. The stream ends with a batch that says so; "
        "what it had not committed is delivered again.",
    ),
    "POST /subscriptions/{subscription_id}/streams/{stream_id}/failures": operation(
        "Explain failures",
        {204: answer("The reasons are recorded.")},
        description="For clients that can't process events of their stream, before they end it: a dead letter that "
        "is made of such an event has the reason. A partition keeps the last one, until its event is committed. "
        "Each item has all members; a reason has 1 to 1,000 characters.",
        body=body(body_schemas.FAILURES, {"items": [_CURSOR | {"reason": "ValueError: no such customer"}]}),
    ),
    "GET /subscriptions/{subscription_id}/cursors": operation(
        "List committed cursors",
        answer(
            "The cursors; none until the subscription was first streamed.",
            listed("CommittedCursors", events.CommittedCursor),
            {"items": [_COMMITTED]},
        ),
    ),
    "POST /subscriptions/{subscription_id}/cursors": operation(
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
        parameters=[header("X-Nakadi-StreamId", "The stream that the cursors came from.", example=_ID, required=True)],
        body=body(body_schemas.CURSORS, {"items": [_COMMITTED]}),
    ),
    "PATCH /subscriptions/{subscription_id}/cursors": operation(
        "Reset cursors",
        {204: answer("All streams have ended, and the next ones begin after these cursors.")},
        description="Cursors may be given as offset, as `BEGIN` or `END`, or as a timestamp, and be shifted. "
        "An item without `partition`, or also without `event_type`, means all partitions, if the place "
        "has a meaning in all of them. Without items the subscription is initialised, and streams continue.",
        body=body(body_schemas.PLACES, {"items": [_CURSOR, {"timestamp": _TIME, "shift": -100}]}),
        problems={409: "A reset is in progress."},
    ),
}

# --- Dead letters ---

_OFFSET = "001-0001-000000000000000542"
_REASON = "ValueError: no such customer"
_ORIGIN = {"event_type": "order.created", "partition": "0"}
_LETTER: Json = {
    **_ORIGIN,
    "offset": _OFFSET,
    "kept_at": "2026-11-20T10:00:00.000Z",
    "error": {"message": "The event was sent 3 times without being committed", "reason": _REASON},
    "event": {"order_id": "1"},
}
_COUNTED = {"redriven": 2, "already_redriven": 0, "without_event_type": 0}
_DEAD_LETTERS: Json = {
    "GET /subscriptions/{subscription_id}/dead-letters": operation(
        "List dead letters",
        answer(
            "Oldest first. A page of large events may have fewer than `limit`. Where there may be more, it has "
            "a link to the next one.",
            paged("DeadLetters", subscriptions.DeadLetter, required=False),
            {"items": [_LETTER]},
        ),
        description="For those who administer the subscription and may read its event types.",
        parameters=[
            query("event_type", "Only events of this event type.", example="order.created"),
            query("partition", "Only events of this partition.", example="0"),
            query("from_offset", "Only events from this offset on.", example=_OFFSET),
            query("to_offset", "Only events up to this offset.", example=_OFFSET),
            query(
                "reason",
                "Only events with exactly this `reason` of their `error`, or `message` if it has none.",
                example=_REASON,
            ),
            query(
                "limit",
                "How many at most.",
                INTEGER | {"minimum": 1, "maximum": LIST_MAX, "default": LIST_DEFAULT},
                LIST_DEFAULT,
            ),
            query("after", "The place after which a page begins, as in the link to it.", example=f"0:{_OFFSET}"),
            query("show_redriven", "Whether to show for each one if it was published again.", BOOLEAN, example=True),
            query("only_open", "Whether to leave out those that were published again.", BOOLEAN, example=True),
        ],
        problems=(422,),
    ),
    "POST /subscriptions/{subscription_id}/dead-letters/redrive": operation(
        "Publish dead letters again",
        answer(
            "They are published, but for those that were before, and those whose event types are gone.",
            subscriptions.Redriven,
            _COUNTED,
        ),
        description="Each one is stored as it was, in its old partition if that is still there, and delivered to "
        "this subscription alone. Asking twice publishes nothing twice, unless `force` is true. Where the answer "
        "has `after`, send it with the next request, which goes on there. For those who administer the "
        "subscription.",
        body=body(body_schemas.REDRIVE, _ORIGIN | {"limit": 10}),
    ),
    "POST /subscriptions/{subscription_id}/dead-letters/redrive/preview": operation(
        "Count what a redrive would publish",
        answer(
            "What a redrive with the same body would answer now; the reasons of what it would publish, the "
            "most frequent first, at most 20; and whether there are `more` than its `limit` to publish.",
            subscriptions.RedrivePreview,
            {**_COUNTED, "more": False, "reasons": [{"reason": _REASON, "count": 2}]},
        ),
        description="Nothing is published. For those who administer the subscription.",
        body=body(body_schemas.REDRIVE, _ORIGIN | {"limit": 10}),
    ),
}

OPERATIONS: Json = {"Subscriptions": _SUBSCRIPTIONS, "Consuming": _CONSUMING, "Dead letters": _DEAD_LETTERS}
