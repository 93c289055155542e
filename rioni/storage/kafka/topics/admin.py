"""Sends administrative requests to Kafka, each with a deadline that holds even if its client hangs."""

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from rioni.storage.kafka.client import KafkaConnection
from rioni.storage.threads import Answer, NotAnswered


GRACE_S = 2.0
"""librdkafka ends every request by its timeout; this much later the client is considered broken."""

RENEWED_EVERY_S = 1.0
"""Clients are replaced at most this often, regardless of the number of callers."""


class Request:
    """A pending request. It keeps its client alive: a garbage-collected client never responds."""

    def __init__(
        self, admin: "Admin", client: AdminClient, name: str, arguments: tuple[Any, ...], timeout_s: float
    ) -> None:
        self._admin, self._client, self._name = admin, client, name
        self._answer, self._deadline_s = Answer(), time.monotonic() + timeout_s + GRACE_S
        # `AdminClient` only wraps these methods, to add a future of its own to the arguments: here it is the answer.
        getattr(super(AdminClient, client), name)(*arguments, self._answer, request_timeout=timeout_s)

    def result(self) -> Any:
        """Wait for the result. Blocks a native thread, until the deadline at most.

        Returns:
            The documented result of the method of `AdminClient`; if that is a future for each item, results by item.

        Raises:
            KafkaException: Kafka rejects the request or one of its items, or has not answered by the deadline.
        """
        result = self.outcomes()
        if isinstance(result, Mapping):
            for item, outcome in result.items():
                error = outcome if isinstance(outcome, KafkaError) else getattr(item, "error", None)
                if error is not None:
                    raise KafkaException(error)
        return result

    def outcomes(self) -> Any:
        """Wait as `result` does, and return the result, with errors instead of results for items that failed.

        Raises:
            KafkaException: Kafka rejects the request, or has not answered by the deadline.
        """
        try:
            return self._answer.wait(self._deadline_s - time.monotonic())
        except NotAnswered as ex:
            self._admin.renew()
            text = f"The Kafka client timed out: {self._name}"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text)) from ex  # noqa: SLF001 - for everybody


class Admin:
    """Admin client of one cluster, for any number of native threads. One client at a time sends new requests.

    A client that only knows a broker cut off from the others never notices, so clients are replaced. Pending requests
    keep the client that sent them.
    """

    def __init__(self, connection: KafkaConnection) -> None:
        """Prepare a client; connects when it is first used."""
        self._settings, self._timeout_s = connection.client(), connection.request_timeout_s
        self._client, self._renewed_s = AdminClient(self._settings), time.monotonic()

    def renew(self) -> None:
        """Send later requests through a new client, unless the present one is new."""
        if time.monotonic() - self._renewed_s > RENEWED_EVERY_S:
            self._renewed_s = time.monotonic()
            self._client = AdminClient(self._settings)

    def begin(self, name: str, *arguments: Any, timeout_s: float | None = None) -> Request:
        """Send a request.

        Args:
            name: the method of `AdminClient`.
            arguments: its positional arguments; `list_offsets` takes partitions whose offsets are the offset spec.
            timeout_s: by default the request time-out of the connection.
        """
        return Request(self, self._client, name, arguments, self._timeout_s if timeout_s is None else timeout_s)

    def request(self, name: str, *arguments: Any, timeout_s: float | None = None) -> Any:
        """Send a request and wait for its result; see `begin` and `Request.result`."""
        return self.begin(name, *arguments, timeout_s=timeout_s).result()  # waits: it has a deadline

    def metadata(self, topic: str | None = None, timeout_s: float | None = None) -> ClusterMetadata:
        """Return the brokers, and the partitions of one topic, by its full name, or of all topics; blocks.

        Raises:
            KafkaException: no broker answers in time.
        """
        client = self._client
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        return client.list_topics(timeout=timeout_s) if topic is None else client.list_topics(topic, timeout_s)
