"""A round trip of openapi-generator's Python client with a broker, whose address is the argument."""

import importlib
import pkgutil
import sys

import openapi_client
from openapi_client import models


for module in pkgutil.walk_packages(openapi_client.__path__, "openapi_client."):
    importlib.import_module(module.name)

api = openapi_client.ApiClient(openapi_client.Configuration(host=sys.argv[1]))
event_types = openapi_client.EventTypesApi(api)
event_type = event_types.create_an_event_type(
    models.SubmittedEventType(
        name="generated.python",
        owning_application="shop",
        category="business",
        enrichment_strategies=["metadata_enrichment"],
        schema=models.SubmittedEventTypeSchema(type="json_schema", var_schema='{"required": ["order"]}'),
        options=models.SubmittedOptions(retention_time=300_000_000),
    )
)
print(event_type.name, event_type.var_schema.version, event_type.authorization, event_type.options.retention_time)

metadata = {"eid": "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11", "occurred_at": "2026-11-20T10:00:00Z"}
event = models.Event.from_dict({"metadata": metadata, "order": "1"})
openapi_client.PublishingApi(api).publish_events("generated.python", [event])

subscription = openapi_client.SubscriptionsApi(api).create_a_subscription(
    models.SubmittedSubscription(owning_application="shop", event_types=["generated.python"], read_from="begin")
)
subscription_id = str(subscription.id)
consuming = openapi_client.ConsumingApi(api)
stream = consuming.stream_a_subscription_without_preload_content(subscription_id, batch_limit=1, stream_timeout=60)
batch = models.Batch.from_json(next(iter(stream)))
print(batch.events[0].additional_properties["order"], batch.cursor.partition)
cursors = [models.SubmittedCursor.from_dict(batch.cursor.to_dict())]
consuming.commit_cursors(subscription_id, stream.headers["X-Nakadi-StreamId"], models.SubmittedCursors(items=cursors))
stream.close()
(committed,) = consuming.list_committed_cursors(subscription_id).items
print(committed.offset == batch.cursor.offset)
statistics = openapi_client.SubscriptionsApi(api).show_the_statistics_of_a_subscription(subscription_id)
print(statistics.items[0].partitions[0].unconsumed_events)
(listed,) = openapi_client.SubscriptionsApi(api).list_subscriptions(event_type=["generated.python"]).items
print(listed.id == subscription.id)
