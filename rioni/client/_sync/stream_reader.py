"""Reads the streams of a consumer, one after the other, and commits for it."""

import contextlib
import logging
import random
import socket
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rioni.client._sync import concurrency
from rioni.client._sync.exchange import WAIT_MAX_S, ConsumerExchange
from rioni.client._sync.subscriptions import Subscriptions
from rioni.client._sync.transport import Transport, read_batches
from rioni.client.consumption.events import BROKEN_MARGIN_S, StreamPartition, StreamSession
from rioni.client.consumption.failures import REFUSALS_MAX, REQUEST_S, Reconnect
from rioni.client.consumption.state import Commit
from rioni.client.errors import BadRequest, ClientError, Conflict, Forbidden, NotFound, UnexpectedAnswer, Unprocessable
from rioni.wire.events import Cursor
from rioni.wire.subscriptions import FailureReason, Subscription


if TYPE_CHECKING:
    import httpx


# --- Reads the streams of a consumer, one after the other ---

_LOG = logging.getLogger("rioni.client.consumer")
_EVENTS = "/subscriptions/{subscription_id}/events"
NEEDS_RESET = "Reset the cursors of the subscription"
"""The text with which a broker ends a stream if an operator has to act before events come again."""


class StreamReader:
    """Opens streams, and puts the batches that they bring into the exchange.

    Args:
        transport: makes the requests.
        exchange: gets the batches, and the error if there is no use in going on.
        subscription: its id, or its definition; then it is created if it does not exist.
    """

    def __init__(self, transport: Transport, exchange: ConsumerExchange, subscription: str | Subscription) -> None:
        self._transport, self._exchange, self._subscription = transport, exchange, subscription
        self._subscriptions = Subscriptions(transport, REQUEST_S)
        self.needs_policy = False
        """Whether the subscription must have a dead-letter policy."""
        self._reconnect = Reconnect(exchange.options.reconnect_s, random.random)
        self._session: StreamSession | None = None
        self._response: httpx.Response | None = None
        self._opened = 0
        """The number of streams that were opened."""
        self._interrupted = False
        """Whether the last stream that was opened was ended here."""

    def run(self) -> None:
        """Read until it is time to stop."""
        exchange = self._exchange
        try:
            while not exchange.stopping:
                exchange.pause(self._read())
        except Exception as ex:  # noqa: BLE001 - the consumer raises it
            exchange.fail(ex)

    def interrupt(self, session: StreamSession | None = None) -> None:
        """End the stream that is being read, or only if it is a certain one."""
        response = self._response
        if response is not None and session in {None, self._session}:
            self._interrupted = True
            _disconnect(response)

    def explain(self, session: StreamSession, reason: FailureReason | None) -> None:
        """Tell the broker why an event is left to it, if it takes that; others than Rioni do not."""
        if reason is not None:
            with contextlib.suppress(ClientError):
                self._subscriptions.record_failures(self._exchange.subscription_id, session.stream_id, [reason])

    def _read(self) -> float:
        """Read one stream to its end; returns how long to wait before the next."""
        ex: ClientError | None = None
        opened = self._opened
        try:
            if not self._exchange.subscription_id:
                self._exchange.subscription_id = self._identify()
            self._read_stream(self._exchange.subscription_id)
        except ClientError as error:
            ex = error
        if self._exchange.stopping:
            return 0.0
        wait_s = self._reconnect.ended(ex, concurrency.now())
        if ex is not None:
            # The reason was logged with the interruption. The slot may be taken until the broker notices the end.
            meant = self._interrupted and (self._opened > opened or isinstance(ex, Conflict))
            level = logging.INFO if meant else logging.WARNING
            _LOG.log(level, "The stream can't be read; next attempt in %.1f s: %s", wait_s, ex)
        return wait_s

    def _read_stream(self, subscription_id: str) -> None:
        with self._transport.stream(
            **self._request(),
            path={"subscription_id": subscription_id},
            headers={"Accept-Encoding": "identity"},
            # A stream sends nothing until it has a partition, for which it may have to wait for another one's commits.
            idle_s=2 * self._exchange.options.commit_timeout_s + BROKEN_MARGIN_S,
        ) as response:
            stream_id = response.headers.get("X-Nakadi-StreamId")
            if not stream_id:
                raise UnexpectedAnswer(f"{response.request.url} did not answer with a stream of a subscription")
            orderly = False
            offsets = self._committed_offsets(subscription_id)
            with self._exchange.shared:
                session = self._session = self._exchange.state.opened(stream_id, offsets, concurrency.now())
                self._response = response
                self._opened += 1
                self._interrupted = False
            try:
                _LOG.info("Stream %s of subscription %s", stream_id, subscription_id)
                self._feed(response, session)
                orderly = not self._exchange.stopping
            finally:
                self._close(session, orderly=orderly)

    def _committed_offsets(self, subscription_id: str) -> dict[StreamPartition, str]:
        """Return the offsets that are committed before the stream has brought anything; none if they can't be read."""
        try:
            cursors = self._subscriptions.cursors(subscription_id)
        except ClientError as ex:
            _LOG.info("The committed cursors are not known: %s", ex)
            return {}
        return {StreamPartition(each.event_type or "", each.partition): each.offset for each in cursors}

    def _identify(self) -> str:
        found = self._subscription
        if isinstance(found, Subscription) and not found.id:
            found = self._subscriptions.create(found)
        if self.needs_policy:
            found = self._subscriptions.get(found if isinstance(found, str) else found.id)
            if not found.dead_letter_policy:
                raise ValueError(
                    f"Subscription {found.id} has no dead-letter policy: events that can't be handled would be "
                    "delivered for ever. Set one with `with_dead_letters`, or choose another outcome of errors."
                )
        return found if isinstance(found, str) else found.id

    def _feed(self, response: "httpx.Response", session: StreamSession) -> None:
        exchange = self._exchange
        for batch in read_batches(response):
            exchange.received(session, batch)
            with exchange.shared:
                while not exchange.state.has_room(session) and not exchange.stopping:
                    exchange.changes.wait(WAIT_MAX_S)
            # The reason why a stream ends comes as a batch, too: a stream that ends at once must not be opened again at
            # once.
            if batch.events or not batch.info:
                self._reconnect.received()

    def _close(self, session: StreamSession, *, orderly: bool) -> None:
        exchange = self._exchange
        with exchange.shared:
            self._session = self._response = None
            exchange.state.closed(session, concurrency.now(), orderly=orderly)
            exchange.changed()
        level = logging.WARNING if NEEDS_RESET in session.said else logging.INFO
        _LOG.log(level, "Stream %s has ended%s", session.stream_id, f": {session.said}" if session.said else "")

    def _request(self) -> dict[str, Any]:
        options = self._exchange.options
        names = ("batch_limit", "max_uncommitted_events", "batch_flush_timeout", "commit_timeout", "stream_timeout")
        params = {name: value for name in names if (value := getattr(options, name)) is not None}
        if not options.partitions:
            return {"method": "GET", "template": _EVENTS, "params": params}
        partitions = [{"event_type": name, "partition": number} for name, number in options.partitions]
        return {"method": "POST", "template": _EVENTS, "body": {**params, "partitions": partitions}}


def _disconnect(response: "httpx.Response") -> None:
    """Have the reading of an answer end at once, which closing the connection would not."""
    connection = response.extensions["network_stream"].get_extra_info("socket")
    with contextlib.suppress(OSError):
        if isinstance(connection, socket.socket):
            # Not the method of an SSL socket, which would also forget the state that the reader uses.
            socket.socket.shutdown(connection, socket.SHUT_RDWR)
        else:
            connection.shutdown(socket.SHUT_RDWR)


# --- Commits for a consumer, keeps its partitions alive, and ends its streams ---

_SILENT = "is silent; its connection is closed"
_STALE = "has brought events of a partition that it had lost; another one is opened"


class StreamCommitter:
    """Makes the commits that are due, one after the other.

    Args:
        subscriptions: makes the requests.
        exchange: has the commits that are due.
        reader: is notified of connections that are broken.
    """

    def __init__(self, subscriptions: Subscriptions, exchange: ConsumerExchange, reader: StreamReader) -> None:
        self._subscriptions, self._exchange, self._reader = subscriptions, exchange, reader
        self._refusals: Counter[StreamPartition] = Counter()

    @property
    def _subscription_id(self) -> str:
        return self._exchange.subscription_id

    def run(self) -> None:
        """Commit until the end, when everything is committed that is handled, or the time is over."""
        try:
            while self._turn():
                pass
        except Exception as ex:  # noqa: BLE001 - the consumer raises it
            self._exchange.fail(ex)

    def _turn(self) -> bool:
        exchange, state = self._exchange, self._exchange.state
        with exchange.shared:
            now_s = concurrency.now()
            commit, broken, over = state.due(now_s), state.broken(now_s), state.take_over()
            if exchange.ending and not over and (state.settled or now_s >= exchange.end_by_s):
                return False
            if not (commit or broken or over):
                exchange.commits_at_s = state.due_at_s(now_s)
                exchange.commits.wait(exchange.commits_at_s - now_s)
        for session in broken:
            _LOG.warning("Stream %s %s", session.stream_id, _STALE if session.stale else _SILENT)
            self._reader.interrupt(session)
        if commit is not None:
            self._commit(commit)
        for stream_id in over:
            self._end(stream_id)
        return True

    def _commit(self, commit: Commit) -> None:
        try:
            stored = []
            if waiting := [cut.progress.partition for cut in commit.cuts if not cut.cursor]:
                stored = self._stored(waiting)
            cursors = stored + [cut.cursor for cut in commit.cuts if cut.cursor and not cut.progress.revoked]
            if cursors:
                self._subscriptions.commit(self._subscription_id, commit.session.stream_id, cursors)
        except (Unprocessable, NotFound) as ex:
            self._refused(commit, ex)
        except ClientError as ex:
            _LOG.warning("Cursors of stream %s are not committed: %s", commit.session.stream_id, ex)
            with self._exchange.shared:
                self._exchange.state.not_committed(commit, concurrency.now())
                self._exchange.changed()
            if isinstance(ex, (BadRequest, Forbidden)):
                self._exchange.fail(ex)
        else:
            with self._exchange.shared:
                self._exchange.state.committed(commit, concurrency.now())
                self._exchange.changed()
            for cut in commit.cuts:
                del self._refusals[cut.progress.partition]

    def _refused(self, commit: Commit, ex: ClientError) -> None:
        """One cursor that is refused refuses all of them, and brokers do not name it."""
        if len(commit.cuts) > 1:
            for single in commit.one_by_one():
                self._commit(single)
            return
        with self._exchange.shared:
            self._exchange.state.refused(commit, str(ex))
            self._exchange.changed()
        _LOG.info("A cursor of stream %s is refused: %s", commit.session.stream_id, ex)
        (cut,) = commit.cuts
        self._refusals[cut.progress.partition] += not cut.events
        if self._refusals[cut.progress.partition] > REFUSALS_MAX:
            self._exchange.fail(ex)

    def _stored(self, partitions: Sequence[StreamPartition]) -> list[Cursor]:
        """The cursors that the broker has; committing them once more asks it to be patient."""
        wanted = set(partitions)
        cursors = self._subscriptions.cursors(self._subscription_id)
        return [each for each in cursors if StreamPartition(each.event_type or "", each.partition) in wanted]

    def _end(self, stream_id: str) -> None:
        """Spare others the time for which the broker would wait for commits; brokers may not know how to."""
        with contextlib.suppress(ClientError):
            self._subscriptions.close_stream(self._subscription_id, stream_id)
