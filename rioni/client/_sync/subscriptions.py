"""Subscriptions: their definitions, their progress, and the events that they never committed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Unpack
from urllib.parse import quote

from rioni.client._sync.event_types import new_ticket
from rioni.client._sync.resource import PAGE, Resource, flag
from rioni.client._sync.transport import Transport
from rioni.client.answers import decode
from rioni.client.keywords import RedriveSelection, list_or_none, redrive_body
from rioni.wire.events import CommitResult, Cursor, CursorSpecification, StreamTicket
from rioni.wire.pages import Items
from rioni.wire.subscriptions import (
    DeadLetter,
    EndedStreams,
    FailureReason,
    FilterEvaluation,
    FilterEvaluations,
    Redriven,
    RedrivePreview,
    Subscription,
    SubscriptionStatistics,
)


DEAD_LETTERS = 20
"""The number of dead letters that are listed by default, as by the broker."""
RESET_S = 90
"""Seconds that a reset may take: the broker waits 61 s for commits by default."""

_LIST = "/subscriptions"
_ITEM = "/subscriptions/{subscription_id}"


class Subscriptions(Resource):
    """Lists, creates, changes, resets and deletes subscriptions. Methods raise `ClientError`."""

    def __init__(self, transport: Transport, retry_s: float | None = None) -> None:
        """Connect to nothing yet.

        Args:
            transport: makes the requests.
            retry_s: for how long those of consumers are made again; by default as long as those of the client.
        """
        super().__init__(transport)
        self._retry_s = retry_s

    def list(
        self,
        *,
        owning_application: str | None = None,
        event_types: Sequence[str] = (),
        reader: str | None = None,
        show_status: bool = False,
        as_of: str | int | None = None,
    ) -> Iterator[Subscription]:
        """The subscriptions that match all given filters, newest first; asks for a page when it is needed.

        Args:
            owning_application: exactly this one.
            event_types: all of these.
            reader: an attribute like `service:shop` that must be listed.
            show_status: whether to include which streams read which partitions.
            as_of: a time (RFC 3339) or a position of the log: the state then.
        """
        params = {
            "owning_application": owning_application,
            "event_type": list_or_none(event_types),
            "reader": reader,
            "show_status": flag(show_status),
            "as_of": as_of,
        }
        return self._numbered(Subscription, _LIST, params)

    def get(self, subscription_id: str, *, as_of: str | int | None = None) -> Subscription:
        """A subscription; raises NotFound."""
        path = {"subscription_id": subscription_id}
        return self._transport.fetch(
            Subscription, "GET", _ITEM, path=path, params={"as_of": as_of}, retry_s=self._retry_s
        )

    def create(self, subscription: Subscription) -> Subscription:
        """Create a subscription, or get the one with the same application, consumer group and event types."""
        return self._transport.fetch(
            Subscription, "POST", _LIST, body=subscription.members(), repeatable=True, retry_s=self._retry_s
        )

    def update(self, subscription: Subscription) -> None:
        """Change authorization, annotations, labels and filter of a subscription; an empty filter removes it."""
        path = {"subscription_id": subscription.id}
        self._transport.request("PUT", _ITEM, path=path, body=subscription.members())

    def delete(self, subscription_id: str) -> None:
        """Delete a subscription and its cursors; its streams end."""
        self._transport.delete(_ITEM, {"subscription_id": subscription_id})

    def stats(
        self, subscription_id: str, *, show_time_lag: bool = False, show_initial_lag: bool = False
    ) -> Sequence[SubscriptionStatistics]:
        """The reader and the lag of each partition, by event type.

        Args:
            subscription_id: the subscription.
            show_time_lag: ask for the lag in seconds, too.
            show_initial_lag: ask for the lag of one that was never streamed, too: from where it would begin; of Rioni
                only.
        """
        path = {"subscription_id": subscription_id}
        params = {
            "show_time_lag": flag(show_time_lag),
            "show_initial_lag": flag(show_initial_lag),
        }
        return self._items(SubscriptionStatistics, f"{_ITEM}/stats", path=path, params=params)

    def ended_streams(self, subscription_id: str) -> Sequence[EndedStreams]:
        """The reasons why streams ended in the last 90 days, by client, the most recent first; of Rioni only."""
        path = {"subscription_id": subscription_id}
        return self._items(EndedStreams, f"{_ITEM}/ended-streams", path=path)

    def cursors(self, subscription_id: str) -> Sequence[Cursor]:
        """The committed cursors; none until the subscription was first streamed."""
        path = {"subscription_id": subscription_id}
        response = self._transport.request("GET", f"{_ITEM}/cursors", path=path, retry_s=self._retry_s)
        return decode(response, Items[Cursor]).items if response.content else []

    def commit(self, subscription_id: str, stream_id: str, cursors: Sequence[Cursor]) -> Sequence[CommitResult]:
        """Commit cursors for a stream; returns the results, or nothing if all cursors advanced.

        Raises:
            Unprocessable: the stream has ended, or a partition belongs to another one.
        """
        response = self._transport.request(
            "POST",
            f"{_ITEM}/cursors",
            path={"subscription_id": subscription_id},
            body={"items": [cursor.members() for cursor in cursors]},
            headers={"X-Nakadi-StreamId": stream_id},
            repeatable=True,
            retry_s=self._retry_s,
        )
        return decode(response, Items[CommitResult]).items if response.content else []

    def reset(self, subscription_id: str, cursors: Sequence[CursorSpecification]) -> None:
        """Set committed cursors, backwards too; ends all streams first, for which it waits about a minute at most."""
        body = {"items": [cursor.members() for cursor in cursors]}
        path = {"subscription_id": subscription_id}
        self._transport.request("PATCH", f"{_ITEM}/cursors", path=path, body=body, idle_s=RESET_S, repeatable=True)

    def close_stream(self, subscription_id: str, stream_id: str) -> None:
        """End a stream; raises NotFound if there is none."""
        path = {"subscription_id": subscription_id, "stream_id": stream_id}
        self._transport.delete(f"{_ITEM}/streams/{{stream_id}}", path, retry_s=self._retry_s)

    def record_failures(self, subscription_id: str, stream_id: str, failures: Sequence[FailureReason]) -> None:
        """Say why at most 100 events of an open stream can't be processed: their dead letters have it; of Rioni only.

        Raises:
            Unprocessable: the stream has ended, or a partition belongs to another one.
        """
        self._transport.request(
            "POST",
            f"{_ITEM}/streams/{{stream_id}}/failures",
            path={"subscription_id": subscription_id, "stream_id": stream_id},
            body={"items": [failure.members() for failure in failures]},
            repeatable=True,
            retry_s=self._retry_s,
        )

    def stream_ticket(self, subscription_id: str) -> StreamTicket:
        """A ticket with which a browser opens a stream of a subscription, once; of Rioni only."""
        return new_ticket(self._transport, f"/subscriptions/{quote(subscription_id, safe='')}/events")

    def try_filter(self, filter: str, events: Sequence[Mapping[str, Any]]) -> Sequence[FilterEvaluation]:  # noqa: A002
        """Whether each of at most 20 events matches a filter, and which part decides it; of Rioni only."""
        body = {"filter": filter, "events": events}
        found = self._transport.fetch(FilterEvaluations, "POST", "/filter-evaluations", body=body, repeatable=True)
        return found.items

    def check_filter(self, filter: str, event_types: Sequence[str]) -> Sequence[str]:  # noqa: A002
        """Compare a filter with the schemas of event types, as for a new subscription; of Rioni only.

        Returns:
            Warnings, such as paths that no schema declares.

        Raises:
            Unprocessable: it is no filter, or the schemas exclude its conditions.
        """
        body = {"filter": filter, "events": [], "event_types": list(event_types)}
        found = self._transport.fetch(FilterEvaluations, "POST", "/filter-evaluations", body=body, repeatable=True)
        return found.warnings

    def dead_letters(
        self,
        subscription_id: str,
        *,
        event_type: str | None = None,
        partition: str | None = None,
        from_offset: str | None = None,
        to_offset: str | None = None,
        reason: str | None = None,
        limit: int | None = None,
        show_redriven: bool = False,
        only_open: bool = False,
    ) -> Sequence[DeadLetter]:
        """Events that were never committed, oldest first.

        Args:
            subscription_id: of the subscription.
            event_type: only of this one.
            partition: only of this one.
            from_offset: the first one.
            to_offset: the last one.
            reason: only those with exactly this message of their error.
            limit: how many at most; by default 20.
            show_redriven: whether to include which were published again before.
            only_open: whether to leave out those that were published again before.
        """
        params: dict[str, Any] = {
            "event_type": event_type,
            "partition": partition,
            "from_offset": from_offset,
            "to_offset": to_offset,
            "reason": reason,
            "limit": limit,
            "show_redriven": flag(show_redriven),
            "only_open": flag(only_open),
        }
        path = {"subscription_id": subscription_id}
        wanted, found = DEAD_LETTERS if limit is None else limit, list[DeadLetter]()
        while True:
            params["limit"] = min(PAGE, wanted - len(found))
            letters, params["after"] = self._page(DeadLetter, f"{_ITEM}/dead-letters", params, path)
            found += letters
            # Pages of large events are short.
            if len(found) >= wanted or params["after"] is None:
                return found

    def redrive(self, subscription_id: str, **selection: Unpack[RedriveSelection]) -> Redriven:
        """Publish dead letters again, for this subscription alone; with `force` also those that were redriven before.

        At most 1,000, or `limit`: if the answer has `after`, ask again with it for the next.

        Raises:
            NotFound: no such subscription, or a broker that is too old for a `reason`.
        """
        body = redrive_body(**selection)
        if "reason" in body:
            # Older brokers ignore a reason, and would publish all.
            self._preview(subscription_id, body | {"limit": 1})
        path = {"subscription_id": subscription_id}
        return self._transport.fetch(
            Redriven, "POST", f"{_ITEM}/dead-letters/redrive", path=path, body=body, repeatable=not body["force"]
        )

    def preview_redrive(self, subscription_id: str, **selection: Unpack[RedriveSelection]) -> RedrivePreview:
        """The result that `redrive` would have now; publishes nothing.

        Raises:
            NotFound: no such subscription, or a broker that has no previews.
        """
        return self._preview(subscription_id, redrive_body(**selection))

    def _preview(self, subscription_id: str, body: Mapping[str, Any]) -> RedrivePreview:
        return self._transport.fetch(
            RedrivePreview,
            "POST",
            f"{_ITEM}/dead-letters/redrive/preview",
            path={"subscription_id": subscription_id},
            body=body,
            repeatable=True,
        )
