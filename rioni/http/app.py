"""The WSGI application: all routes, in the order of the API definition."""

from typing import Any

import falcon

from rioni.domain.errors import RioniError
from rioni.domain.event_types.rules import ENRICHMENT_STRATEGIES, PARTITION_STRATEGIES
from rioni.http import problems
from rioni.http.dependencies import Dependencies
from rioni.http.middleware.access_log import AccessMiddleware, DenialMiddleware
from rioni.http.middleware.authentication import AuthenticationMiddleware
from rioni.http.middleware.base_path import BasePathMiddleware
from rioni.http.middleware.cross_site import SiteMiddleware
from rioni.http.middleware.requests import RequestMiddleware
from rioni.http.openapi.page import DocsResource, OpenApiResource
from rioni.http.request_parsing import OnceRequest
from rioni.http.resources.administration import (
    AdminsResource,
    BlacklistEntryResource,
    BlacklistResource,
    DefaultStorageResource,
    FeaturesResource,
    NodesResource,
    RightsResource,
    StorageResource,
    StoragesResource,
)
from rioni.http.resources.audit import AuditResource, DenialsResource
from rioni.http.resources.clients import ConsumersResource, ProducersResource
from rioni.http.resources.dead_letters import (
    DeadLettersResource,
    RedrivePreviewResource,
    RedriveResource,
)
from rioni.http.resources.event_types import (
    EventTypeFacetsResource,
    EventTypeResource,
    EventTypesResource,
    RegistryResource,
)
from rioni.http.resources.events import DeletedEventsResource, EventsResource
from rioni.http.resources.filter_evaluations import FilterEvaluationsResource
from rioni.http.resources.jobs import JobResource, JobsResource, RebuildResource, RebuildsResource
from rioni.http.resources.monitoring import (
    HealthResource,
    LiveResource,
    MetricsHistoryResource,
    MetricsResource,
    ReadyResource,
    VersionResource,
)
from rioni.http.resources.partitions import (
    CursorDistancesResource,
    CursorsLagResource,
    PartitionCountResource,
    PartitionResource,
    PartitionsResource,
    ShiftedCursorsResource,
    TimelinesResource,
)
from rioni.http.resources.schemas import (
    AvroSchemaResource,
    AvroSchemasResource,
    CompatibilityCheckResource,
    SchemaResource,
    SchemasResource,
)
from rioni.http.resources.stream_tickets import StreamTicketsResource
from rioni.http.resources.subscription_events import (
    StreamFailuresResource,
    SubscriptionCursorsResource,
    SubscriptionEventsResource,
    SubscriptionStreamResource,
)
from rioni.http.resources.subscriptions import (
    EndedStreamsResource,
    SubscriptionResource,
    SubscriptionsResource,
    SubscriptionStatsResource,
)
from rioni.http.resources.transparency_log import (
    CheckpointResource,
    ConsistencyResource,
    CosignaturesResource,
    InclusionResource,
    LogKeyResource,
    LogKeysResource,
    TileResource,
)


def routes(dependencies: Dependencies) -> list[tuple[str, Any]]:
    """Every path with its resource."""
    return [
        ("/avro-schemas/{name}/versions", AvroSchemasResource()),
        ("/avro-schemas/{name}/versions/{version}", AvroSchemaResource()),
        ("/event-types", EventTypesResource(dependencies)),
        ("/event-types/{name}", EventTypeResource(dependencies)),
        ("/event-types/{name}/events", EventsResource(dependencies)),
        ("/event-types/{name}/deleted-events", DeletedEventsResource(dependencies)),
        ("/event-types/{name}/cursor-distances", CursorDistancesResource(dependencies)),
        ("/event-types/{name}/cursors-lag", CursorsLagResource(dependencies)),
        ("/event-types/{name}/shifted-cursors", ShiftedCursorsResource(dependencies)),
        ("/event-types/{name}/consumers", ConsumersResource(dependencies)),
        ("/event-types/{name}/producers", ProducersResource(dependencies)),
        ("/event-types/{name}/partitions", PartitionsResource(dependencies)),
        ("/event-types/{name}/partitions/{partition}", PartitionResource(dependencies)),
        ("/event-types/{name}/partition-count", PartitionCountResource(dependencies)),
        ("/event-types/{name}/timelines", TimelinesResource(dependencies)),
        ("/event-types/{name}/schemas", SchemasResource(dependencies)),
        ("/event-types/{name}/schemas/{version}", SchemaResource(dependencies)),
        ("/event-types/{name}/schemas/{version}/compatibility-check", CompatibilityCheckResource(dependencies)),
        ("/event-type-facets", EventTypeFacetsResource(dependencies)),
        ("/subscriptions", SubscriptionsResource(dependencies)),
        ("/subscriptions/{subscription_id}", SubscriptionResource(dependencies)),
        ("/subscriptions/{subscription_id}/events", SubscriptionEventsResource(dependencies)),
        ("/subscriptions/{subscription_id}/streams/{stream_id}", SubscriptionStreamResource(dependencies)),
        ("/subscriptions/{subscription_id}/streams/{stream_id}/failures", StreamFailuresResource(dependencies)),
        ("/subscriptions/{subscription_id}/stats", SubscriptionStatsResource(dependencies)),
        ("/subscriptions/{subscription_id}/ended-streams", EndedStreamsResource(dependencies)),
        ("/subscriptions/{subscription_id}/cursors", SubscriptionCursorsResource(dependencies)),
        ("/subscriptions/{subscription_id}/dead-letters", DeadLettersResource(dependencies)),
        ("/subscriptions/{subscription_id}/dead-letters/redrive", RedriveResource(dependencies)),
        ("/subscriptions/{subscription_id}/dead-letters/redrive/preview", RedrivePreviewResource(dependencies)),
        ("/stream-tickets", StreamTicketsResource(dependencies)),
        ("/filter-evaluations", FilterEvaluationsResource(dependencies)),
        ("/audit", AuditResource(dependencies)),
        ("/audit/denials", DenialsResource(dependencies)),
        ("/log/checkpoint", CheckpointResource(dependencies)),
        ("/log/cosignatures", CosignaturesResource(dependencies)),
        ("/log/key", LogKeyResource(dependencies)),
        ("/log/keys", LogKeysResource(dependencies)),
        ("/log/proof/consistency", ConsistencyResource(dependencies)),
        ("/log/proof/inclusion", InclusionResource(dependencies)),
        ("/log/tile/{level}/{rest:path}", TileResource(dependencies)),
        ("/nodes", NodesResource(dependencies)),
        ("/jobs", JobsResource(dependencies)),
        ("/jobs/{job_id}", JobResource(dependencies)),
        ("/rebuilds", RebuildsResource(dependencies)),
        ("/rebuilds/{rebuild_id}", RebuildResource(dependencies)),
        ("/settings/admins", AdminsResource(dependencies)),
        ("/settings/blacklist", BlacklistResource(dependencies)),
        ("/settings/blacklist/{blacklist_type}/{name}", BlacklistEntryResource(dependencies)),
        ("/settings/features", FeaturesResource(dependencies)),
        ("/storages", StoragesResource(dependencies)),
        ("/storages/default/{storage_id}", DefaultStorageResource(dependencies)),
        ("/storages/{storage_id}", StorageResource(dependencies)),
        ("/rights", RightsResource(dependencies)),
        ("/registry/enrichment-strategies", RegistryResource(ENRICHMENT_STRATEGIES)),
        ("/registry/partition-strategies", RegistryResource(PARTITION_STRATEGIES)),
        ("/metrics", MetricsResource(dependencies)),
        ("/metrics/history", MetricsHistoryResource(dependencies)),
        ("/health", HealthResource()),
        ("/livez", LiveResource(dependencies)),
        ("/readyz", ReadyResource(dependencies)),
        ("/version", VersionResource()),
        ("/openapi.json", OpenApiResource(dependencies.compute_pool)),
        ("/docs", DocsResource(dependencies.compute_pool)),
    ]


def create_app(dependencies: Dependencies) -> falcon.App[Any, Any]:
    """Put the application together for one process."""
    # Requests pass them in this order, responses in reverse.
    middleware: list[Any] = [
        AccessMiddleware(dependencies.usage, dependencies.clock),
        RequestMiddleware(dependencies.metrics, dependencies.bodies, dependencies.answers),
        DenialMiddleware(dependencies.denied, dependencies.metrics),
        *([BasePathMiddleware()] if dependencies.config.trusted_proxies else ()),
        SiteMiddleware(dependencies.config),
        AuthenticationMiddleware(dependencies.authentication, dependencies.stream_tickets),
    ]
    app = falcon.App(middleware=middleware, media_type=falcon.MEDIA_JSON, request_type=OnceRequest)
    app.req_options.strip_url_path_trailing_slash = True
    app.req_options.auto_parse_qs_csv = False
    # An answer without a body has no type; RequestMiddleware gives one to all others.
    app.resp_options.default_media_type = None  # type: ignore[assignment]
    app.add_error_handler(Exception, problems.on_unexpected)
    app.add_error_handler(falcon.HTTPError, problems.on_http_error)
    app.add_error_handler(RioniError, problems.on_rioni_error)
    for path, resource in routes(dependencies):
        if hasattr(resource, "on_get"):
            # Falcon sends the headers of the answer, and drops its body.
            resource.on_head = resource.on_get
        app.add_route(path, resource)
    return app
