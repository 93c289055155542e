"""A broker for tests: a process of its own, whose time, faults and contents a test controls."""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rioni.testing import isolation
from rioni.testing.control import BrokerError, ControlSocket
from rioni.testing.expectations import LOOK_EVERY_S, Event, EventReader, Match, expect


if TYPE_CHECKING:
    from rioni.client import AsyncClient, Client, Cursor, EventType


READY_WITHIN_S = 60.0
OWN_REQUESTS = {"Rioni-Testing": "broker"}
"""Header of requests that tests make through the broker itself: faults are for the code under test."""


class Broker:
    """A broker on this machine: `with Broker() as broker:`. It is as `rioni serve`, with one worker.

    Its data are in a temporary folder, in memory where there is enough. It ends, and the folder is removed, with
    `stop`, or with this process. Methods block, and may be called by several threads.

    Args:
        settings: as of `rioni serve`, by name, in place of what is usual in tests: port 0, no authentication. Neither
            the environment nor a `rioni.toml` is looked at.
        token: of an administrator, where `settings` ask for authentication.
        ca_certificate: PEM file with the authority to trust, where `settings` name a certificate.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        token: str | None = None,
        ca_certificate: str | Path | None = None,
    ) -> None:
        self._settings = settings or {}
        self._client_options: dict[str, Any] = {"token": token, "ca_certificate": ca_certificate}
        self._control: ControlSocket | None = None
        self._url: str | None = None
        self._folder: Path | None = None
        self._clients = contextlib.ExitStack()
        self._own_client: Client | None = None
        self._lock = threading.Lock()
        self._ends: Mapping[str, Sequence[Cursor]] = {}
        """Where event types ended that there were before this test."""
        self._created: list[str] = []
        """Names of the event types that were created with `create_event_type`."""

    @classmethod
    def at(cls, url: str, *, token: str | None = None, ca_certificate: str | Path | None = None) -> Self:
        """A broker that was started elsewhere: it has no faults, and its time is not moved.

        Args:
            url: where it is, such as `http://localhost:8080`.
            token: of an administrator, if it asks for one.
            ca_certificate: PEM file with the authority to trust.
        """
        broker = cls(token=token, ca_certificate=ca_certificate)
        broker._url = url
        return broker

    # --- its life ---

    def begin(self) -> None:
        """Begin to start it, without waiting."""
        with self._lock:
            if self._control is None and self._url is None:
                self._control = ControlSocket(self._settings)

    def start(self) -> None:
        """Start it, and wait until it answers; a broker that has started stays as it is.

        Raises:
            BrokerError: it can't start; the text has the reason.
        """
        self.begin()
        with self._lock:
            if self._url is None:
                assert self._control is not None, "it has begun"
                try:
                    self._url, folder = self._control.wait_until_ready(READY_WITHIN_S)
                except BrokerError:
                    self._control.close()
                    self._control = None
                    raise
                self._folder = Path(folder)

    def stop(self) -> None:
        """End it with all it has stored, and close its clients; it may be started again then, as a new one."""
        with self._lock:
            self._clients.close()
            if self._own_client is not None:
                self._own_client.close()
                self._own_client = None
            if self._control is not None:
                self._control.close()
                self._control = self._url = self._folder = None
                self._created, self._ends = [], {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, ex: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it is; raises BrokerError before it has started."""
        if self._url is None:
            raise BrokerError("The broker has not started: use `with Broker() as broker`, or call start().")
        return self._url

    @property
    def running(self) -> bool:
        """Whether it runs; one that was started elsewhere counts as running."""
        return self._url is not None and (self._control is None or not self._control.has_ended())

    def log(self) -> str:
        """What the broker has logged; empty where it was started elsewhere."""
        return "" if self._folder is None else (self._folder / "log").read_text(errors="replace")

    # --- its contents ---

    def client(self, **options: Any) -> "Client":
        """A client of the broker, closed with it or with `isolated`.

        Args:
            options: of `rioni.client.Client`.
        """
        from rioni.client import Client  # noqa: PLC0415 - PERF: only tests that use a broker pay for it

        client = Client(self.url, **{**self._client_options, **options})
        self._clients.callback(client.close)
        return client

    def async_client(self, **options: Any) -> "AsyncClient":
        """A client for asyncio, to be used as an async context manager.

        Args:
            options: of `rioni.client.AsyncClient`.
        """
        from rioni.client import AsyncClient  # noqa: PLC0415 - as above

        return AsyncClient(self.url, **{**self._client_options, **options})

    def create_event_type(self, name: str, schema: Mapping[str, Any] | None = None, **members: Any) -> "EventType":
        """Create an event type, of the category `business` and with one partition.

        Args:
            name: of the event type.
            schema: JSON schema of its events; by default any object is one.
            members: of `rioni.client.EventType`, such as `category`, `partition_strategy` or `options`. The number of
                `partitions` may be given as well.

        Raises:
            rioni.client.Problem: the broker refuses it.
        """
        from rioni.client import EventType, Schema, Statistic  # noqa: PLC0415 - as above

        partitions = members.pop("partitions", 1)
        defaults: dict[str, Any] = {
            "owning_application": "tests",
            "schema": Schema.json({"type": "object"} if schema is None else dict(schema)),
            "default_statistic": Statistic(
                messages_per_minute=1, message_size=1, read_parallelism=partitions, write_parallelism=partitions
            ),
        }
        if members.get("category") == "undefined":
            defaults["enrichment_strategies"] = []
        created = self._own.event_types.create(EventType(name=name, **{**defaults, **members}))
        self._created.append(name)
        return created

    def publish(self, event_type: str, *events: Any) -> None:
        """Publish events as the code under test would; raises as `rioni.client.Client.publish`."""
        # A client remembers categories of event types, which another test may have given another one.
        with self._new_own() as client:
            client.publish(event_type, events)

    def published(self, event_type: str) -> list[Event]:
        """The events that were published in this test, in the order of each partition; raises ClientError."""
        return self._reader(event_type).read()

    def expect(
        self, event_type: str, match: Match = None, *, count: int | None = None, within_s: float = 5
    ) -> list[Event]:
        """Wait for events, and return those that match; the test fails if they do not come.

        Args:
            event_type: the name.
            match: what they must have: `{"order": {"id": "7"}}` is true for events that have this and any other
                members; a value may be a function of the value. Or a function of the event.
            count: exactly how many match; None for one or more. With 0 it waits until the time is over.
            within_s: how long to wait.

        Raises:
            AssertionError: they have not come, or there are more; says what came in their place.
            rioni.client.ClientError: the event type can't be read.
        """
        __tracebackhide__ = True
        return expect(self._reader(event_type), event_type, match, count=count, within_s=within_s)

    def expect_consumed(self, subscription_id: str, *, within_s: float = 5) -> None:
        """Wait until a subscription has committed all of its events; the test fails if it has not in time.

        Args:
            subscription_id: of the subscription.
            within_s: how long to wait.

        Raises:
            AssertionError: something is left; says how much in which partition.
            rioni.client.ClientError: the subscription can't be read.
        """
        __tracebackhide__ = True
        until_s = time.monotonic() + within_s
        while left := self._unconsumed(subscription_id):
            if time.monotonic() >= until_s:
                raise AssertionError(
                    f"Subscription {subscription_id} has not committed everything within {within_s:g} s; left are "
                    + ", ".join(f"{count} of {partition}" for partition, count in left.items())
                )
            time.sleep(LOOK_EVERY_S)

    @contextlib.contextmanager
    def isolated(self) -> Iterator[Self]:
        """Undo at the end of the block what was changed in it.

        Event types, subscriptions and storages that were created are deleted, settings are set back, faults that have
        not happened are forgotten, and clients closed. What there was before stays, with all of its events; those that
        were published before do not count for `published` and `expect`. The time stays moved.

        In a broker that was started elsewhere nothing is deleted but what `create_event_type` has created, and the
        subscriptions to that: others may use it. Of event types that there were before, all events count.
        """
        self.start()
        own = self._own
        since, ends = (isolation.position(own), isolation.ends(own)) if self._control is not None else (None, {})
        outside = self._created, self._ends, self._clients
        self._created, self._ends, self._clients = [], ends, contextlib.ExitStack()
        try:
            yield self
        finally:
            self._clients.close()
            if since is None:
                isolation.delete(own, self._created)
            else:
                self.clear_faults()
                isolation.undo(own, since)
            self._created, self._ends, self._clients = outside

    # --- faults and time ---

    def fail_next(
        self,
        status: int,
        *,
        count: int = 1,
        method: str | None = None,
        path: str = "*",
        retry_after_s: int | None = None,
    ) -> None:
        """Answer the next requests with an error; they are not processed.

        Args:
            status: of HTTP, 400 or above.
            count: of requests.
            method: only those with this verb.
            path: only those for a path like this one, such as `/event-types/*/events`.
            retry_after_s: value of the header `Retry-After`.

        Raises:
            BrokerError: there is no such status, or the broker was started elsewhere.
        """
        self._add_fault(status=status, count=count, method=method, path=path, retry_after_s=retry_after_s)

    def delay_next(self, seconds: float, *, count: int = 1, method: str | None = None, path: str = "*") -> None:
        """Process the next requests so many seconds later; the rest as for `fail_next`."""
        self._add_fault(delay_s=seconds, count=count, method=method, path=path)

    def drop_next(self, *, count: int = 1, method: str | None = None, path: str = "*", processed: bool = False) -> None:
        """Close the connections of the next requests in place of an answer.

        Args:
            count: of requests.
            method: only those with this verb.
            path: only those for a path like this one.
            processed: whether they are processed before, so that the client can't know whether they were.

        Raises:
            BrokerError: the broker was started elsewhere.
        """
        self._add_fault(drop=True, count=count, method=method, path=path, processed=processed)

    def drop_connections(self) -> int:
        """Close all connections that are open, streams as well; return how many; raises as `drop_next`."""
        return self._controlled.request("drop_connections")

    def clear_faults(self) -> int:
        """Forget the faults that have not happened; return for how many requests they were; raises as `drop_next`."""
        return self._controlled.request("clear_faults")

    def advance(self, time: timedelta | None = None, **units: float) -> datetime:
        """Move the broker's time ahead, and do all that is due then: events expire, streams time out.

        Args:
            time: by how much.
            units: likewise, such as `hours=3`; see `datetime.timedelta`.

        Returns:
            The broker's time then.

        Raises:
            ValueError: time does not go back.
            BrokerError: the broker was started elsewhere.
        """
        by = (time or timedelta()) + timedelta(**units)
        if by < timedelta():
            raise ValueError("Time can only be moved ahead; begin another broker for an earlier time.")
        now_ms = self._controlled.request("advance", milliseconds=round(by / timedelta(milliseconds=1)))
        return datetime.fromtimestamp(now_ms / 1_000, UTC)

    @property
    def _own(self) -> "Client":
        """For the requests of the broker itself."""
        with self._lock:
            if self._own_client is None:
                self._own_client = self._new_own()
            return self._own_client

    def _new_own(self) -> "Client":
        from rioni.client import Client  # noqa: PLC0415 - as above

        return Client(self.url, **self._client_options, headers=OWN_REQUESTS)

    @property
    def _controlled(self) -> ControlSocket:
        if self._control is None:
            where = "was started elsewhere" if self._url else "has not started"
            raise BrokerError(f"Faults and time need a broker of the tests; this one {where}.")
        return self._control

    def _add_fault(self, **fault: object) -> None:
        self._controlled.request("add_fault", fault=fault)

    def _reader(self, event_type: str) -> EventReader:
        return EventReader(self._own, event_type, self._ends.get(event_type, ()))

    def _unconsumed(self, subscription_id: str) -> dict[str, int | None]:
        statistics = self._own.subscriptions.stats(subscription_id)
        return {
            f"{each.event_type}:{partition.partition}": partition.unconsumed_events
            for each in statistics
            for partition in each.partitions
            if partition.unconsumed_events != 0
        }
