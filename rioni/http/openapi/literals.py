"""The values of the literals that the structs and parameters of the API name."""

from collections.abc import Iterable, Mapping
from typing import get_args

from rioni.domain.event_types import rules
from rioni.domain.streaming.messages import Reason
from rioni.domain.subscriptions.subscription import READ_FROM
from rioni.domain.system import reports
from rioni.domain.system.settings import BLACKLIST_TYPES, FEATURES
from rioni.http.metrics.sampler import NAMES
from rioni.http.operations import Outcome


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
