"""A client of the API: of Rioni, or of any server of the Nakadi API.

`Client` is for threads, `AsyncClient` for asyncio; both have the same methods.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rioni.client._sync.client import Client
from rioni.client._sync.producer import Producer
from rioni.client._sync.send_buffer import Delivery
from rioni.client.consumption.event_values import EventMetadata
from rioni.client.consumption.events import Event, EventBatch, StreamPartition
from rioni.client.consumption.options import ConsumerOptions
from rioni.client.encoding import metadata
from rioni.client.errors import (
    BadRequest,
    ClientError,
    Conflict,
    ConnectionFailed,
    EventFailed,
    EventsNotStored,
    Forbidden,
    NotFound,
    PreconditionFailed,
    Problem,
    ProducerClosed,
    PublishingFailed,
    ServerError,
    TimedOut,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    Unprocessable,
)
from rioni.wire.access import Admins, Attribute, EventTypeAuthorization, SubscriptionAuthorization
from rioni.wire.administration import (
    Blacklist,
    Blocked,
    Check,
    Feature,
    Health,
    Job,
    JobReport,
    Metrics,
    MetricsHistory,
    MetricsSeries,
    Node,
    NodeWorker,
    Rebuild,
    Rights,
    Storage,
)
from rioni.wire.audit import AuditEntry, Change, ConsistencyProof, Denial, InclusionProof, VerifierKey
from rioni.wire.event_types import (
    AvroSchema,
    Compatibility,
    Consumers,
    ConsumingSubscription,
    EventOwnerSelector,
    EventType,
    EventTypeFacets,
    Facet,
    FacetValue,
    Options,
    Partition,
    ProducingClient,
    ReadingClient,
    Schema,
    Statistic,
    Timeline,
    Unused,
)
from rioni.wire.events import (
    Batch,
    CommitResult,
    Cursor,
    CursorSpecification,
    Distance,
    ItemResult,
    StreamTicket,
)
from rioni.wire.subscriptions import (
    DeadLetter,
    EndedStreams,
    FailureReason,
    FilterEvaluation,
    FilterPart,
    PartitionStatistics,
    ReasonCount,
    Redriven,
    RedrivePreview,
    Subscription,
    SubscriptionStatistics,
)


if TYPE_CHECKING:
    from rioni.client._async.client import AsyncClient
    from rioni.client._async.consumer import AsyncConsumer
    from rioni.client._async.producer import AsyncProducer
    from rioni.client._async.send_buffer import AsyncDelivery
    from rioni.client._sync.consumer import Consumer

# PERF: asyncio takes a fifth of the time of an import, and half of the applications need none of these.
_LATER = {
    "AsyncClient": "_async.client",
    "AsyncConsumer": "_async.consumer",
    "AsyncDelivery": "_async.send_buffer",
    "AsyncProducer": "_async.producer",
    "Consumer": "_sync.consumer",
}


def __getattr__(name: str) -> Any:
    """Import names that are not imported with the package."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"rioni.client.{_LATER[name]}"), name)


__all__ = [
    "Admins",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncProducer",
    "Attribute",
    "AuditEntry",
    "AvroSchema",
    "BadRequest",
    "Batch",
    "Blacklist",
    "Blocked",
    "Change",
    "Check",
    "Client",
    "ClientError",
    "CommitResult",
    "Compatibility",
    "Conflict",
    "ConnectionFailed",
    "ConsistencyProof",
    "Consumer",
    "ConsumerOptions",
    "Consumers",
    "ConsumingSubscription",
    "Cursor",
    "CursorSpecification",
    "DeadLetter",
    "Delivery",
    "Denial",
    "Distance",
    "EndedStreams",
    "Event",
    "EventBatch",
    "EventFailed",
    "EventMetadata",
    "EventOwnerSelector",
    "EventType",
    "EventTypeAuthorization",
    "EventTypeFacets",
    "EventsNotStored",
    "Facet",
    "FacetValue",
    "FailureReason",
    "Feature",
    "FilterEvaluation",
    "FilterPart",
    "Forbidden",
    "Health",
    "InclusionProof",
    "ItemResult",
    "Job",
    "JobReport",
    "Metrics",
    "MetricsHistory",
    "MetricsSeries",
    "Node",
    "NodeWorker",
    "NotFound",
    "Options",
    "Partition",
    "PartitionStatistics",
    "PreconditionFailed",
    "Problem",
    "Producer",
    "ProducerClosed",
    "ProducingClient",
    "PublishingFailed",
    "ReadingClient",
    "ReasonCount",
    "Rebuild",
    "RedrivePreview",
    "Redriven",
    "Rights",
    "Schema",
    "ServerError",
    "Statistic",
    "Storage",
    "StreamPartition",
    "StreamTicket",
    "Subscription",
    "SubscriptionAuthorization",
    "SubscriptionStatistics",
    "TimedOut",
    "Timeline",
    "TooLarge",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "UnexpectedAnswer",
    "Unprocessable",
    "Unused",
    "VerifierKey",
    "metadata",
]
