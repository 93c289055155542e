"""OpenAPI operations of publishing and of streams, with the streams' parameters."""

from rioni.domain.avro.binary import MEDIA_TYPE as AVRO
from rioni.domain.publishing import headers
from rioni.http.openapi.builders import (
    BINARY,
    INTEGER,
    STRING,
    Json,
    all_of,
    also,
    answer,
    array,
    body,
    header,
    operation,
    or_problem,
    queries,
    query,
)
from rioni.http.streaming.frames import Frames, LengthPrefixedAvroFrames
from rioni.http.streaming.server_sent_events import LAST_EVENT_ID
from rioni.http.streaming.server_sent_events import MEDIA_TYPE as SERVER_SENT_EVENTS
from rioni.wire import events
from rioni.wire.json_schema import EVENT, parameters


_EVENTS = [
    {
        "order_id": "ES-4711",
        "metadata": {"eid": "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11", "occurred_at": "2026-11-20T10:00:00Z"},
    }
]
_RESULTS = [
    {
        "publishing_status": "failed",
        "detail": "#/order_id: expected type: String, found: Integer",
        "step": "validating",
        "eid": "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11",
        "partition": None,
    }
]
BATCH = {"cursor": {"partition": "0", "offset": "001-0001-000000000000000542"}, "events": _EVENTS}


def streamed(batch: Json, header: str) -> Json:
    """A stream of batches like this one."""
    in_json = answer(
        "Batches until the stream ends: one on each line, or each the data of a server-sent event if the client names "
        f"that. A client that accepts nothing but `{AVRO}` gets one message in Avro after the other, under the same "
        f"media type as JSON; one that accepts nothing but `{LengthPrefixedAvroFrames.MEDIA_TYPE}` gets each message "
        "behind its length.",
        events.Batch,
        batch,
        media=Frames.MEDIA_TYPE,
        headers=(header,),
    )
    return also(also(in_json, LengthPrefixedAvroFrames.MEDIA_TYPE), SERVER_SENT_EVENTS)


LAST_EVENT = header(
    LAST_EVENT_ID,
    "With server-sent events the id of the last one that was received, as browsers send it when they connect again: "
    "the stream continues after it; that of a subscription commits it first.",
)


_ANSWERS = {
    200: answer("All events are on disk."),
    207: answer("Not all events could be stored: one result for each.", all_of(events.ItemResult)),
    422: or_problem(
        answer(
            "An event is refused, and nothing was stored: one result for each event. A problem where it is the request "
            "as a whole that is against a rule.",
            all_of(events.ItemResult),
            _RESULTS,
        )
    ),
}
_HEADERS = [
    header(
        headers.IDEMPOTENCY_KEY,
        "Names the batch, best with a UUID: when the same batch is sent again it is not stored again.",
        STRING | {"minLength": 1, "maxLength": headers.KEY_CHARACTERS_MAX},
        "6fcf3a0c-1f55-4b21-8f3c-6a1c0a1c7f0e",
    ),
    header(
        headers.CONSUMER_TAG,
        "Names the one subscription that gets the events.",
        example="consumer_subscription_id=038fc871-1d2c-4e2e-aa29-1579e8f2e71f",
    ),
    header(
        "traceparent",
        "W3C's trace context: kept, with `tracestate`, in `metadata.span_ctx` of events that have none.",
        example="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ),
    header("tracestate", "Goes with `traceparent`.", example="vendor=1"),
]
_DELETIONS = [{"order_id": "ES-4711", "metadata": {"partition_compaction_key": "ES-4711"}}]

_PUBLISHING: Json = {
    "POST /event-types/{name}/events": operation(
        "Publish events",
        _ANSWERS,
        description="The events of a batch are validated against the event type's schema, put into partitions and "
        "enriched with metadata. Events of one partition keep their order.",
        parameters=[*_HEADERS],
        body=also(body(array(EVENT), _EVENTS, description="An array of events, or a batch in Avro."), AVRO, BINARY),
    ),
    "POST /event-types/{name}/deleted-events": operation(
        "Delete events",
        _ANSWERS,
        description="Of a compacted event type the events with these keys go with the next compaction. Each "
        "event needs its `metadata.partition_compaction_key`, and what its partition is chosen by; it is not "
        "validated. Consumers see nothing of it.",
        parameters=[*_HEADERS],
        body=also(body(array(EVENT), _DELETIONS, description="An array of events, or a batch in Avro."), AVRO, BINARY),
    ),
}

_STREAMS: Json = {
    "GET /event-types/{name}/events": operation(
        "Stream the events of an event type",
        streamed(BATCH, "Warning"),
        description="The client itself remembers how far it has read. A batch without `events` shows that the "
        "stream is alive.",
        parameters=[
            header(
                "X-Nakadi-Cursors",
                "A JSON array of cursors: the last event read of each partition to stream. Without it all "
                "partitions are streamed, from now on.",
                example='[{"partition": "0", "offset": "BEGIN"}]',
            ),
            query("cursors", "The same, for browsers, which can set no headers.", STRING),
            query("filter", "A CEL expression, as for subscriptions: only events that match.", STRING),
            query(
                "events_per_second_limit",
                "How many events are looked at in a second; of more the newest ones are, and `info.left_out` "
                "counts the others. 0 for all.",
                INTEGER | {"minimum": -(2**31) + 1, "maximum": 2**31 - 1, "default": 0},
            ),
            LAST_EVENT,
            *queries(parameters(events.StreamParameters)),
        ],
        problems={
            412: "A cursor names nothing that can be read.",
            422: "",
            429: "The client has too many streams, of a partition or of all kinds.",
        },
        deprecated=True,
    )
}


OPERATIONS: Json = {"Publishing": _PUBLISHING, "Low-level streams": _STREAMS}
