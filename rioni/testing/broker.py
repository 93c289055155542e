"""A broker for tests: a separate process, whose time, faults and contents a test controls."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rioni.testing import isolation
from rioni.testing.expectations import LOOK_EVERY_S, Event, EventReader, Match, expect
from rioni.testing.process import BrokerError, BrokerProcess


if TYPE_CHECKING:
    from rioni.client import AsyncClient, Client, Cursor, EventType


# --- Applies definitions to a broker for tests, with the command line, in a process of its own ---

WITHIN_S = 60.0
_OWN_VARIABLES = ("RIONI_URL", "RIONI_TOKEN", "RIONI_CONTEXT")


def apply(
    url: str, paths: Sequence[str | Path], *, token: str | None, ca_certificate: str | Path | None
) -> list[Mapping[str, Any]]:
    """Make event types and subscriptions of a broker match files; blocks.

    Args:
        url: of the broker.
        paths: of files and folders.
        token: of an administrator, if it asks for one.
        ca_certificate: PEM file with the authority to trust.

    Returns:
        The output of `rioni event-types apply --json` for each definition.

    Raises:
        BrokerError: something is wrong with the definitions; the text lists the problems and their places.
    """
    command = [sys.executable, "-m", "rioni", "event-types", "apply", *map(str, paths), "--yes", "--json", "--url", url]
    if ca_certificate is not None:
        command += ["--ca-certificate", str(ca_certificate)]
    # The environment is that of the code under test, which may speak to another broker.
    environment = {name: value for name, value in os.environ.items() if name not in _OWN_VARIABLES}
    if token is not None:
        environment["RIONI_TOKEN"] = token
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as ex:
        raise BrokerError(f"The definitions were not applied within {WITHIN_S:g} s.") from ex
    if done.returncode:
        raise BrokerError(f"The definitions can't be applied: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


OWN_REQUESTS = {"Rioni-Testing": "broker"}
"""Header of requests that tests make through the broker itself: faults are for the code under test."""
RETRY_S = 10.0
"""Seconds for which clients of tests repeat a request: nobody wants to wait for minutes for a test that fails."""


class Broker(BrokerProcess):
    """A broker on this machine: `with Broker() as broker:`. It is as `rioni serve`, with one worker.

    Its data are in a temporary folder, in memory where there is enough. It ends, and the folder is removed, with
    `stop`, or with this process. Methods block, and may be called by several threads.

    Args:
        settings: settings of `rioni serve`, by name, which override the defaults of tests: port 0, no authentication.
            Neither the environment nor a `rioni.toml` is read.
        token: of an administrator, if `settings` ask for authentication.
        ca_certificate: PEM file with the authority to trust, if `settings` name a certificate.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        token: str | None = None,
        ca_certificate: str | Path | None = None,
    ) -> None:
        super().__init__(settings or {})
        self._client_options: dict[str, Any] = {"token": token, "ca_certificate": ca_certificate, "retry_s": RETRY_S}
        self._clients = contextlib.ExitStack()
        self._own_client: Client | None = None
        self._ends: Mapping[str, isolation.End] = {}
        """The ends of the event types that existed before this test."""
        self._created: list[str] = []
        """Names of the event types that were created with `create_event_type`."""

    @classmethod
    def at(cls, url: str, *, token: str | None = None, ca_certificate: str | Path | None = None) -> Self:
        """A broker that was started elsewhere: it has no faults, and its time is not moved.

        Args:
            url: its base URL, such as `http://localhost:8080`.
            token: of an administrator, if it asks for one.
            ca_certificate: PEM file with the authority to trust.
        """
        broker = cls(token=token, ca_certificate=ca_certificate)
        broker._url = url
        return broker

    def stop(self) -> None:
        """End it with all it has stored, and close its clients; it may be started again then, as a new one."""
        self._clients.close()
        if self._own_client is not None:
            self._own_client.close()
            self._own_client = None
        self._created, self._ends = [], {}
        super().stop()

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

    def apply(self, *paths: str | Path) -> list[Mapping[str, Any]]:
        """Create the event types and subscriptions that files define, as `rioni event-types apply` does; blocks.

        Args:
            paths: of files, and of folders with definitions at any depth; relative to the working directory.

        Returns:
            The result for each definition: `action`, `kind`, `name`, `id` and others.

        Raises:
            BrokerError: something is wrong with them; nothing was changed, or the text lists the changes.
        """
        options = self._client_options
        done = apply(self.url, paths, token=options["token"], ca_certificate=options["ca_certificate"])
        self._created += [each["name"] for each in done if each["kind"] == "event-type" and each["action"] == "create"]
        return done

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
            AssertionError: they have not come, or there are more; the text shows the events that came instead.
            rioni.client.ClientError: the event type can't be read.
        """
        __tracebackhide__ = True
        return expect(self._reader(event_type), event_type, match, count=count, within_s=within_s)

    def expect_consumed(self, subscription_id: str, *, within_s: float = 5) -> None:
        """Wait until a subscription has committed all events of this test; the test fails if it has not in time.

        Args:
            subscription_id: of the subscription.
            within_s: how long to wait.

        Raises:
            AssertionError: something is left; the text shows how much in which partition.
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
        """Undo at the end of the block the changes that were made in it.

        Event types, subscriptions and storages that were created are deleted, settings are set back, faults that have
        not happened are forgotten, and clients closed. What there was before stays, with all of its events; those that
        were published before do not count for `published`, `expect` and `expect_consumed`. The time stays moved.

        In a broker that was started elsewhere nothing is deleted but what `create_event_type` has created, and the
        subscriptions to that: others may use it.
        """
        self.start()
        own = self._own
        since, ends = isolation.position(own) if self._control is not None else None, isolation.ends(own)
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

    @property
    def _own(self) -> "Client":
        """The client for the requests of the broker itself."""
        with self._lock:
            if self._own_client is None:
                self._own_client = self._new_own()
            return self._own_client

    def _new_own(self) -> "Client":
        from rioni.client import Client  # noqa: PLC0415 - as above

        return Client(self.url, **self._client_options, headers=OWN_REQUESTS)

    def _reader(self, event_type: str) -> EventReader:
        return EventReader(self._own, event_type, self._end(event_type))

    def _end(self, event_type: str) -> "Sequence[Cursor]":
        """The end of an event type before this test; empty if it was created in this test."""
        from rioni.client import NotFound  # noqa: PLC0415 - as above

        end = self._ends.get(event_type)
        if end is None:
            return ()
        try:
            return end.cursors if self._own.event_types.get(event_type).created_at == end.created_at else ()
        except NotFound:
            return ()

    def _unconsumed(self, subscription_id: str) -> dict[str, int | None]:
        statistics = self._own.subscriptions.stats(subscription_id)
        left: dict[str, int | None] = {}
        for each in statistics:
            behind = {one.partition: one.unconsumed_events for one in each.partitions if one.unconsumed_events != 0}
            silent = self._silent(each.event_type) if behind else ()
            left |= {f"{each.event_type}:{one}": count for one, count in behind.items() if one not in silent}
        return left

    def _silent(self, event_type: str) -> set[str]:
        """The partitions without events of this test, of an event type that there was before."""
        if not (end := self._end(event_type)):
            return set()
        found = self._own.partitions.list(event_type, cursors=end)
        return {each.partition for each in found if each.unconsumed_events == 0}
