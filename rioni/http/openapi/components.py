"""OpenAPI components that many operations share: headers, parameters, literals, problems, ways to authenticate."""

from collections.abc import Iterable, Mapping
from typing import get_args

from rioni.domain.event_types import rules
from rioni.domain.streaming.messages import Reason
from rioni.domain.subscriptions.subscription import READ_FROM
from rioni.domain.system import reports
from rioni.domain.system.settings import BLACKLIST_TYPES, FEATURES
from rioni.http.metrics.sampler import NAMES
from rioni.http.openapi.builders import PROBLEMS, STRING, Json, answer, literal, path, problem_name
from rioni.http.operations import Outcome
from rioni.http.problems import PROBLEM_JSON
from rioni.wire.pages import Problem


def responses() -> Json:
    """A problem for each status."""
    return {problem_name(status): answer(text, Problem, media=PROBLEM_JSON) for status, text in PROBLEMS.items()}


HEADERS: Json = {
    "X-Flow-Id": {
        "description": "The flow id of the request, or a new one; it stands in the logs of the broker.",
        "required": True,
        "schema": STRING,
    },
    "span_ctx": {
        "description": "The span context of the request as a JSON object, empty if there is none.",
        "required": True,
        "schema": STRING,
    },
    "ETag": {"description": "Names this state of the resource.", "required": True, "schema": STRING},
    "Link": {"description": "The neighbours of the page, as RFC 8288 has it: `prev` and `next`.", "schema": STRING},
    "Warning": {
        "description": "What the client should know; absent if there is nothing, and with events that refuse a stream.",
        "schema": STRING,
    },
    "Location": {"description": "The path of the subscription.", "required": True, "schema": STRING},
    "Content-Location": {"description": "As `Location`.", "required": True, "schema": STRING},
    "X-Nakadi-StreamId": {
        "description": "The id of the stream, which commits name; absent with server-sent events that refuse one.",
        "schema": {"type": "string", "format": "uuid"},
    },
    "Content-Security-Policy": {"description": "What the page may load: nothing.", "required": True, "schema": STRING},
    "X-Content-Type-Options": {"description": "`nosniff`.", "required": True, "schema": STRING},
    "Referrer-Policy": {"description": "`no-referrer`.", "required": True, "schema": STRING},
    "Log-Position": {
        "description": "The position of the log that the answer is about; absent where none was asked for.",
        "schema": STRING,
    },
    "Cache-Control": {"description": "The answer is never kept.", "required": True, "schema": STRING},
}
PARAMETERS: Json = {
    "FlowId": {
        "name": "X-Flow-Id",
        "in": "header",
        "description": "Names the request in logs and in the metadata of its events: up to 200 printable characters.",
        "schema": STRING,
        "example": "checkout-4711",
    },
    "SpanContext": {
        "name": "span_ctx",
        "in": "header",
        "description": "The span that the request belongs to, as a JSON object of texts.",
        "schema": STRING,
        "example": '{"trace-id": "5a1b"}',
    },
    "ContentEncoding": {
        "name": "Content-Encoding",
        "in": "header",
        "description": "How the body is compressed, if it is.",
        "schema": literal("ContentEncoding"),
    },
}
SEGMENTS: Json = {
    "name": path("name", "The name of the event type.", "order.created"),
    "version": path("version", "A version, or `latest`.", "latest"),
    "partition": path("partition", "The id of the partition.", "0"),
    "subscription_id": path("subscription_id", "The id of the subscription.", "038fc871-1d2c-4e2e-aa29-1579e8f2e71f"),
    "stream_id": path(
        "stream_id", "The stream, as `X-Nakadi-StreamId` named it.", "b75c3102-98a4-4385-a5fd-b96f1d7872f2"
    ),
    "storage_id": path("storage_id", "The id of the storage.", "default"),
    "job_id": path("job_id", "A UUID that the client has chosen.", "3c0e54cf-6a52-4f7d-9c65-31f3f4d0e7aa"),
    "rebuild_id": path("rebuild_id", "The id of the rebuild.", "0d9a5e1c-33a1-4b6b-8d6f-9e4f4c0f2a11"),
    "level": path("level", "The level of the tile, or `entries`.", "0"),
    "rest": path("rest", "Number and width; may have slashes.", "x001/x234/067"),
}
"""The parameters of paths, by name."""
SECURITY_SCHEMES: Json = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "Where the broker asks for one: the header `Authorization: Bearer …` with a token that one of "
        "its token sources accepts; see the manual on security.",
    },
}
_JOB_STATES = (*reports.STATES, reports.INTERRUPTED)
LITERALS: Mapping[str, Iterable[str | int]] = {
    "AssignmentState": ("unassigned", "reassigning", "assigned"),
    "AssignmentType": ("auto", "direct"),
    "Audience": rules.AUDIENCES,
    "AuditOrder": ("asc", "desc"),
    "BlacklistType": BLACKLIST_TYPES,
    "BrokerRight": ("READ", "WRITE", "ADMIN", "HISTORY"),
    "Category": rules.CATEGORIES,
    "CheckStatus": ("ok", "warning", "failed"),
    "CleanupPolicy": rules.CLEANUP_POLICIES,
    "CommitOutcome": ("committed", "outdated"),
    "CompatibilityMode": rules.COMPATIBILITY_MODES,
    "ContentEncoding": ("gzip", "zstd"),
    "DenialStatus": (401, 403),
    "EndReason": [reason.label for reason in Reason],
    "EventTypeRight": ("READ", "WRITE", "ADMIN"),
    "FeatureName": FEATURES,
    "JobKind": reports.KINDS,
    "JobState": _JOB_STATES,
    "LivenessStatus": ("ok",),
    "MetricName": NAMES,
    "NoLivenessStatus": ("failed",),
    "NoReadinessStatus": ("failed", "stopping"),
    "Outcome": get_args(Outcome),
    "OwnerSelectorType": rules.OWNER_SELECTOR_TYPES,
    "PartitionStrategy": rules.PARTITION_STRATEGIES,
    "PatchOperation": ("add", "remove", "replace"),
    "PublishingStatus": ("submitted", "failed", "aborted"),
    "PublishingStep": ("none", "validating", "partitioning", "enriching", "publishing"),
    "ReadFrom": READ_FROM,
    "ReadinessStatus": ("ok",),
    "RebuildState": _JOB_STATES,
    "SchemaType": rules.SCHEMA_TYPES,
    "SeriesOrder": ("name", "largest"),
    "SubmittedJobKind": (reports.ARCHIVE,),
    "SubmittedJobState": reports.STATES,
    "SubscriptionRight": ("READ", "ADMIN", "STREAM", "REDRIVE"),
}
"""The values of the literals that the structs and parameters of the API name."""
