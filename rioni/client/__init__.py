"""A client of the API: of Rioni, or of any server of the Nakadi API.

`Client` is for threads, `AsyncClient` for asyncio; both have the same methods.
"""

from typing import TYPE_CHECKING, Any

from rioni.client._sync.client import Client
from rioni.client.encoding import metadata
from rioni.client.errors import (
    BadRequest,
    ClientError,
    Conflict,
    ConnectionFailed,
    Forbidden,
    NotFound,
    PreconditionFailed,
    Problem,
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
from rioni.client.models.access import Attribute, EventTypeAuthorization, SubscriptionAuthorization
from rioni.client.models.administration import (
    Admins,
    Blacklist,
    Blocked,
    Check,
    Feature,
    Health,
    Metrics,
    Rebuild,
    Storage,
)
from rioni.client.models.audit import AuditEntry, Change, ConsistencyProof, Denial, InclusionProof, VerifierKey
from rioni.client.models.event_types import (
    AvroSchema,
    Compatibility,
    Consumers,
    ConsumingSubscription,
    EventOwnerSelector,
    EventType,
    Options,
    Partition,
    ProducingClient,
    ReadingClient,
    Schema,
    Statistic,
    Timeline,
)
from rioni.client.models.events import Batch, CommitResult, Cursor, CursorSpecification, Distance, ItemResult
from rioni.client.models.subscriptions import (
    DeadLetter,
    PartitionStatistics,
    Redriven,
    Subscription,
    SubscriptionStatistics,
)


if TYPE_CHECKING:
    from rioni.client._async.client import AsyncClient


def __getattr__(name: str) -> Any:
    """PERF: asyncio takes a fifth of the time of an import, and half of the applications need none."""
    if name != "AsyncClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rioni.client._async.client import AsyncClient  # noqa: PLC0415

    return AsyncClient


__all__ = [
    "Admins",
    "AsyncClient",
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
    "Consumers",
    "ConsumingSubscription",
    "Cursor",
    "CursorSpecification",
    "DeadLetter",
    "Denial",
    "Distance",
    "EventOwnerSelector",
    "EventType",
    "EventTypeAuthorization",
    "Feature",
    "Forbidden",
    "Health",
    "InclusionProof",
    "ItemResult",
    "Metrics",
    "NotFound",
    "Options",
    "Partition",
    "PartitionStatistics",
    "PreconditionFailed",
    "Problem",
    "ProducingClient",
    "PublishingFailed",
    "ReadingClient",
    "Rebuild",
    "Redriven",
    "Schema",
    "ServerError",
    "Statistic",
    "Storage",
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
    "VerifierKey",
    "metadata",
]
