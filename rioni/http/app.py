"""The WSGI application: all routes, in the order of the API definition."""

from collections.abc import Mapping
from typing import Any

import falcon

from rioni.domain.errors import RioniError
from rioni.http import problems
from rioni.http.dependencies import Dependencies, Resource
from rioni.http.middleware.access_log import AccessMiddleware, DenialMiddleware
from rioni.http.middleware.authentication import AuthenticationMiddleware
from rioni.http.middleware.base_path import BasePathMiddleware
from rioni.http.middleware.cross_site import SiteMiddleware
from rioni.http.middleware.requests import RequestMiddleware
from rioni.http.openapi import page
from rioni.http.request_parsing import OnceRequest
from rioni.http.resources import (
    administration,
    audit,
    clients,
    dead_letters,
    event_types,
    events,
    filter_evaluations,
    monitoring,
    partitions,
    schemas,
    streams,
    subscription_events,
    subscriptions,
    transparency_log,
)


ROUTES: Mapping[str, type[Resource]] = {
    "/avro-schemas/{name}/versions": schemas.AvroSchemasResource,
    "/avro-schemas/{name}/versions/{version}": schemas.AvroSchemaResource,
    "/event-types": event_types.EventTypesResource,
    "/event-types/{name}": event_types.EventTypeResource,
    "/event-types/{name}/events": events.EventsResource,
    "/event-types/{name}/deleted-events": events.DeletedEventsResource,
    "/event-types/{name}/cursor-distances": partitions.CursorDistancesResource,
    "/event-types/{name}/cursors-lag": partitions.CursorsLagResource,
    "/event-types/{name}/shifted-cursors": partitions.ShiftedCursorsResource,
    "/event-types/{name}/consumers": clients.ConsumersResource,
    "/event-types/{name}/producers": clients.ProducersResource,
    "/event-types/{name}/partitions": partitions.PartitionsResource,
    "/event-types/{name}/partitions/{partition}": partitions.PartitionResource,
    "/event-types/{name}/partition-count": partitions.PartitionCountResource,
    "/event-types/{name}/timelines": partitions.TimelinesResource,
    "/event-types/{name}/schemas": schemas.SchemasResource,
    "/event-types/{name}/schemas/{version}": schemas.SchemaResource,
    "/event-types/{name}/schemas/{version}/compatibility-check": schemas.CompatibilityCheckResource,
    "/event-type-facets": event_types.EventTypeFacetsResource,
    "/subscriptions": subscriptions.SubscriptionsResource,
    "/subscriptions/{subscription_id}": subscriptions.SubscriptionResource,
    "/subscriptions/{subscription_id}/events": subscription_events.SubscriptionEventsResource,
    "/subscriptions/{subscription_id}/streams/{stream_id}": subscription_events.SubscriptionStreamResource,
    "/subscriptions/{subscription_id}/streams/{stream_id}/failures": subscription_events.StreamFailuresResource,
    "/subscriptions/{subscription_id}/stats": subscriptions.SubscriptionStatsResource,
    "/subscriptions/{subscription_id}/ended-streams": subscriptions.EndedStreamsResource,
    "/subscriptions/{subscription_id}/cursors": subscription_events.SubscriptionCursorsResource,
    "/subscriptions/{subscription_id}/dead-letters": dead_letters.DeadLettersResource,
    "/subscriptions/{subscription_id}/dead-letters/redrive": dead_letters.RedriveResource,
    "/subscriptions/{subscription_id}/dead-letters/redrive/preview": dead_letters.RedrivePreviewResource,
    "/stream-tickets": streams.StreamTicketsResource,
    "/filter-evaluations": filter_evaluations.FilterEvaluationsResource,
    "/audit": audit.AuditResource,
    "/audit/denials": audit.DenialsResource,
    "/log/checkpoint": transparency_log.CheckpointResource,
    "/log/cosignatures": transparency_log.CosignaturesResource,
    "/log/key": transparency_log.LogKeyResource,
    "/log/keys": transparency_log.LogKeysResource,
    "/log/proof/consistency": transparency_log.ConsistencyResource,
    "/log/proof/inclusion": transparency_log.InclusionResource,
    "/log/tile/{level}/{rest:path}": transparency_log.TileResource,
    "/nodes": administration.NodesResource,
    "/jobs": administration.JobsResource,
    "/jobs/{job_id}": administration.JobResource,
    "/rebuilds": administration.RebuildsResource,
    "/rebuilds/{rebuild_id}": administration.RebuildResource,
    "/settings/admins": administration.AdminsResource,
    "/settings/blacklist": administration.BlacklistResource,
    "/settings/blacklist/{blacklist_type}/{name}": administration.BlacklistEntryResource,
    "/settings/features": administration.FeaturesResource,
    "/storages": administration.StoragesResource,
    "/storages/default/{storage_id}": administration.DefaultStorageResource,
    "/storages/{storage_id}": administration.StorageResource,
    "/rights": administration.RightsResource,
    "/registry/enrichment-strategies": event_types.EnrichmentStrategiesResource,
    "/registry/partition-strategies": event_types.PartitionStrategiesResource,
    "/metrics": monitoring.MetricsResource,
    "/metrics/history": monitoring.MetricsHistoryResource,
    "/health": monitoring.HealthResource,
    "/livez": monitoring.LiveResource,
    "/readyz": monitoring.ReadyResource,
    "/version": monitoring.VersionResource,
    "/openapi.json": page.OpenApiResource,
    "/docs": page.DocsResource,
}
"""Every path with its resource."""


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
    for path, kind in ROUTES.items():
        resource: Any = kind(dependencies)
        if hasattr(resource, "on_get"):
            # Falcon sends the headers of the answer, and drops its body.
            resource.on_head = resource.on_get
        app.add_route(path, resource)
    return app
