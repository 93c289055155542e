"""OpenAPI operations of dead letters."""

from rioni.domain.subscriptions.dead_letters import LIST_DEFAULT, LIST_MAX
from rioni.http.bodies import body_schemas
from rioni.http.openapi.builders import BOOLEAN, INTEGER, Json, answer, body, operation, paged, path, query
from rioni.wire import subscriptions


DEAD_LETTERS = "Dead letters"

_SUBSCRIPTION_ID = path("subscription_id", "The id of the subscription.", "038fc871-1d2c-4e2e-aa29-1579e8f2e71f")
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
PATHS: Json = {
    "/subscriptions/{subscription_id}/dead-letters": {
        "get": operation(
            DEAD_LETTERS,
            "List dead letters",
            {
                200: answer(
                    "Oldest first. A page of large events may have fewer than `limit`. Where there may be more, it has "
                    "a link to the next one.",
                    paged("DeadLetters", subscriptions.DeadLetter, required=False),
                    {"items": [_LETTER]},
                )
            },
            description="For those who administer the subscription and may read its event types.",
            parameters=[
                _SUBSCRIPTION_ID,
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
                query(
                    "show_redriven", "Whether to show for each one if it was published again.", BOOLEAN, example=True
                ),
                query("only_open", "Whether to leave out those that were published again.", BOOLEAN, example=True),
            ],
            problems=(403, 404, 422),
        ),
    },
    "/subscriptions/{subscription_id}/dead-letters/redrive": {
        "post": operation(
            DEAD_LETTERS,
            "Publish dead letters again",
            {
                200: answer(
                    "They are published, but for those that were before, and those whose event types are gone.",
                    subscriptions.Redriven,
                    _COUNTED,
                )
            },
            description="Each one is stored as it was, in its old partition if that is still there, and delivered to "
            "this subscription alone. Asking twice publishes nothing twice, unless `force` is true. Where the answer "
            "has `after`, send it with the next request, which goes on there. For those who administer the "
            "subscription.",
            parameters=[_SUBSCRIPTION_ID],
            body=body(body_schemas.REDRIVE, _ORIGIN | {"limit": 10}),
            problems=(403, 404, 422),
        ),
    },
    "/subscriptions/{subscription_id}/dead-letters/redrive/preview": {
        "post": operation(
            DEAD_LETTERS,
            "Count what a redrive would publish",
            {
                200: answer(
                    "What a redrive with the same body would answer now; the reasons of what it would publish, the "
                    "most frequent first, at most 20; and whether there are `more` than its `limit` to publish.",
                    subscriptions.RedrivePreview,
                    {**_COUNTED, "more": False, "reasons": [{"reason": _REASON, "count": 2}]},
                )
            },
            description="Nothing is published. For those who administer the subscription.",
            parameters=[_SUBSCRIPTION_ID],
            body=body(body_schemas.REDRIVE, _ORIGIN | {"limit": 10}),
            problems=(403, 404, 422),
        ),
    },
}
