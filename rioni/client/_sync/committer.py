"""Commits for a consumer, keeps its partitions alive, and ends its streams."""

import contextlib
import logging
from collections import Counter
from collections.abc import Sequence

from rioni.client._sync import concurrency
from rioni.client._sync.exchange import Exchange
from rioni.client._sync.stream_reader import StreamReader
from rioni.client._sync.subscriptions import Subscriptions
from rioni.client.consumption.events import StreamPartition
from rioni.client.consumption.reconnect import REFUSALS_MAX
from rioni.client.consumption.state import Commit
from rioni.client.errors import BadRequest, ClientError, Forbidden, NotFound, Unprocessable
from rioni.wire.events import Cursor


_LOG = logging.getLogger("rioni.client.consumer")
_SILENT = "is silent; its connection is closed"
_STALE = "has brought events of a partition that it had lost; another one is opened"


class Committer:
    """Makes the commits that are due, one after the other.

    Args:
        subscriptions: makes the requests.
        exchange: has the commits that are due.
        reader: is notified of connections that are broken.
    """

    def __init__(self, subscriptions: Subscriptions, exchange: Exchange, reader: StreamReader) -> None:
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
