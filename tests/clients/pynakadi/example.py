"""Creates an event type, publishes, and consumes by a subscription with pyNakadi; the argument is the broker's URL."""

import json
import os
import sys
import uuid
from datetime import UTC, datetime

from pyNakadi import NakadiClient, NakadiException


NAME = "order.placed"
client = NakadiClient(os.environ.get("NAKADI_TOKEN", "none"), sys.argv[1])


def placed(order: object) -> dict:
    """A business event."""
    return {"order": order, "metadata": {"eid": str(uuid.uuid4()), "occurred_at": datetime.now(UTC).isoformat()}}


event_type = {
    "name": NAME,
    "owning_application": "shop",
    "category": "business",
    "enrichment_strategies": ["metadata_enrichment"],
    "partition_strategy": "hash",
    "partition_key_fields": ["order"],
    "schema": {
        "type": "json_schema",
        "schema": json.dumps({"properties": {"order": {"type": "string"}}, "required": ["order"]}),
    },
}
client.create_event_type(event_type)
try:
    client.create_event_type(event_type)
except NakadiException as ex:
    print(ex.code, ex.msg)

client.post_events(NAME, [placed(order) for order in ("1", "2", "3")])
try:
    client.post_events(NAME, [placed("4"), placed(5)])
except NakadiException as ex:
    print(ex.code, ex.msg)

# The subscription that exists is returned where there is one with these members.
subscription = client.create_subscription(
    {"owning_application": "warehouse", "event_types": [NAME], "consumer_group": "stock", "read_from": "begin"}
)
stream = client.get_subscription_events_stream(subscription["id"], batch_limit=2, stream_limit=3)
# Not `for line in stream`, which may lose what arrives together with the header of the answer.
for line in stream.response.iter_lines(chunk_size=65_536):
    batch = json.loads(line)
    for event in batch.get("events", []):
        print("order", event["order"], "in partition", event["metadata"]["partition"])
    if batch.get("events"):
        client.commit_subscription_cursors(subscription["id"], stream.get_stream_id(), [batch["cursor"]])
stream.close()

(of_event_type,) = client.get_subscription_stats(subscription["id"])["items"]
print("unconsumed:", sum(each["unconsumed_events"] for each in of_event_type["partitions"]))
