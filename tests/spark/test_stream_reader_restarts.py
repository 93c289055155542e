"""A streaming query goes on over restarts of its broker, with every event once."""

from urllib.parse import urlsplit

import pytest

from tests.support.lake import create_orders, publish_orders
from tests.support.server import running_server
from tests.support.waiting import wait_until


pytestmark = [pytest.mark.slow, pytest.mark.spark]

EVENTS = 30
"""Number of events in each run of the broker."""


class Query:
    """A streaming query whose micro-batches are kept, by number."""

    def __init__(self, reader, checkpoint) -> None:
        self.batches: dict[int, list[int]] = {}
        writer = reader.load().writeStream.foreachBatch(self._store).option("checkpointLocation", str(checkpoint))
        self._query = writer.start()

    def _store(self, frame, number) -> None:
        assert number not in self.batches
        self.batches[number] = [row.amount for row in frame.collect()]

    def wait_for(self, events: int) -> None:
        """Wait until it has `events` events; raises the error that has ended it."""
        wait_until(lambda: sum(map(len, self.batches.values())) >= events or not self._query.isActive)
        if not self._query.isActive:
            raise self._query.exception()

    def stop(self) -> None:
        self._query.stop()


def test_a_query_goes_on_where_its_broker_was_killed_or_stopped(registered, tmp_path):
    data, port, query = tmp_path / "data", "0", None
    try:
        for run, end in enumerate(("kill", "stop", None)):
            with running_server(data, "--workers", "1", "--port", port) as server, server.client() as client:
                if query is None:
                    name, port = create_orders(client), str(urlsplit(server.url).port)
                    options = {"url": server.url, "event_type": name, "events_per_batch": 10}
                    query = Query(registered.readStream.format("rioni").options(**options), tmp_path / "checkpoint")
                amounts = range(run * EVENTS, (run + 1) * EVENTS)
                publish_orders(client, name, *({"order": str(amount), "amount": amount} for amount in amounts))
                query.wait_for(run * EVENTS + (EVENTS if end is None else 1))
                if end is not None:
                    getattr(server, end)()
        found = [amount for batch in query.batches.values() for amount in batch]
        assert sorted(found) == list(range(3 * EVENTS))
    finally:
        if query is not None:
            query.stop()
