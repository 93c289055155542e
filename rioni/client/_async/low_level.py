"""Low-level streams: of one event type, whose client remembers by itself how far it has read."""

from collections.abc import AsyncIterator, Sequence

import msgspec

from rioni.client._async.batch_reader import read_batches
from rioni.client._async.transport import Transport
from rioni.wire.events import Batch, Cursor


IDLE_MARGIN_S = 30
"""Seconds after the flush time-out for which a stream may be silent before it counts as broken."""


async def low_level_stream(
    transport: Transport,
    event_type: str,
    *,
    cursors: Sequence[Cursor] = (),
    batch_limit: int = 500,
    stream_limit: int = 0,
    batch_flush_timeout: int = 5,
    stream_timeout: int = 0,
    stream_keep_alive_limit: int = 0,
    events_per_second_limit: int = 0,
    filter: str | None = None,  # noqa: A002 - the name of the API
) -> AsyncIterator[Batch]:
    """Stream an event type once; batches without events are keep-alives.

    Args:
        transport: makes the request.
        event_type: the name.
        cursors: the last event read of each partition to stream, or `BEGIN`; without cursors all partitions are
            streamed, from now on.
        batch_limit: events in a batch at most.
        stream_limit: events after which the stream ends; 0 for none.
        batch_flush_timeout: seconds after which a batch is sent that has not become full.
        stream_timeout: seconds after which the stream ends; 0 for about an hour.
        stream_keep_alive_limit: keep-alives in a row after which the stream ends; 0 for none.
        events_per_second_limit: events that are looked at in a second; of more come the newest, and the number of the
            others in `left_out` of a batch's `info`. 0 for all; of Rioni only.
        filter: a CEL expression over `event`: only events that match; of Rioni only.

    Raises:
        PreconditionFailed: a cursor names nothing that can be read.
        ClientError: no answer, another refusal, or a broken connection.
    """
    places = [{"partition": cursor.partition, "offset": cursor.offset} for cursor in cursors]
    params = {
        # The broker refuses batches that are larger than the whole stream.
        "batch_limit": min(batch_limit, stream_limit or batch_limit),
        "stream_limit": stream_limit or None,
        "batch_flush_timeout": min(batch_flush_timeout, stream_timeout or batch_flush_timeout),
        "stream_timeout": stream_timeout or None,
        "stream_keep_alive_limit": stream_keep_alive_limit or None,
        "events_per_second_limit": events_per_second_limit or None,
        "filter": filter,
    }
    async with transport.stream(
        "GET",
        "/event-types/{name}/events",
        path={"name": event_type},
        params=params,
        headers={"X-Nakadi-Cursors": msgspec.json.encode(places).decode()} if places else None,
        idle_s=batch_flush_timeout + IDLE_MARGIN_S,
    ) as response:
        async for batch in read_batches(response):
            yield batch
