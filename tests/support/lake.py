"""Event types to be archived, what the broker stores of them, and what the tables of a lake have."""

import json
import uuid
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from rioni.client import Client
from rioni.lake.archive import Archive, open_lake
from rioni.lake.event_type_archive import ArchiveMetrics, CommitLimits, RoundResult
from rioni.lake.iceberg_table import EVENT_TYPE
from rioni.lake.location import parse_location
from tests.support.builders import event_type_body


FORMATS = ("delta", "iceberg")
PARTITIONS = 3
PROPERTIES = {"order": {"type": "string"}, "amount": {"type": "integer"}}
PRESENT = "2026-01-02T03:04:05Z"


def schema_of(properties: dict) -> dict:
    return {"type": "json_schema", "schema": json.dumps({"properties": properties})}


def create_orders(client: httpx.Client, **changes) -> str:
    """Create an event type with three partitions, and return its name."""
    name = f"order.created-{uuid.uuid4().hex[:8]}"
    load = {
        "messages_per_minute": 1,
        "message_size": 1,
        "read_parallelism": PARTITIONS,
        "write_parallelism": PARTITIONS,
    }
    body = {"name": name, "schema": schema_of(PROPERTIES), "default_statistic": load, "compatibility_mode": "none"}
    keys = {"partition_strategy": "hash", "partition_key_fields": ["order"]}
    response = client.post("/event-types", json=event_type_body(**(body | keys | changes)))
    assert response.status_code == 201, response.text
    return name


def change_schema(client: httpx.Client, name: str, properties: dict) -> None:
    body = client.get(f"/event-types/{name}").json() | {"schema": schema_of(properties)}
    response = client.put(f"/event-types/{name}", json=body)
    assert response.status_code == 200, response.text


def publish_orders(client: httpx.Client, name: str, *events: dict) -> None:
    """Publish events, with metadata unless they have some."""
    batch = [{"metadata": {"eid": str(uuid.uuid4()), "occurred_at": PRESENT}, **each} for each in events]
    response = client.post(f"/event-types/{name}/events", json=batch)
    assert response.status_code == 200, response.text


def stored(client: httpx.Client, name: str) -> list[str]:
    """All events of an event type as the broker stores them, sorted."""
    found = []
    for each in client.get(f"/event-types/{name}/partitions").json():
        oldest, newest = (
            int(each[f"{end}_available_offset"].removeprefix("001-0001-")) for end in ("oldest", "newest")
        )
        if newest >= oldest:
            cursors = json.dumps([{"partition": each["partition"], "offset": "BEGIN"}])
            query = f"batch_limit=1&stream_limit={newest - oldest + 1}&batch_flush_timeout=1&stream_keep_alive_limit=1"
            path = f"/event-types/{name}/events?{query}"
            lines = client.get(path, headers={"X-Nakadi-Cursors": cursors}).text.splitlines()
            found += [canonical(event) for line in lines for event in json.loads(line).get("events", ())]
    return sorted(found)


def move_to_kafka(client: httpx.Client, name: str, kafka: str) -> None:
    """Open the next timeline of an event type in a Kafka."""
    storage = {"id": uuid.uuid4().hex, "storage_type": "kafka", "kafka_configuration": {"bootstrap_servers": kafka}}
    response = client.post("/storages", json=storage)
    assert response.status_code == 201, response.text
    response = client.post(f"/event-types/{name}/timelines", json={"storage_id": storage["id"]})
    assert response.status_code == 201, response.text


def _underscored(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")


def canonical(event: dict) -> str:
    return json.dumps(event, sort_keys=True)


class ArchiveUnderTest:
    """Archives into a lake with the JSON of each event, and reads what is there."""

    def __init__(self, *, url: str, to: str, format_: str, catalog: str | None = None) -> None:
        self.url, self.to, self.format, self.catalog = url, to, format_, catalog
        self.metrics = ArchiveMetrics()

    def archive(self, *names: str, **limits) -> dict[str, RoundResult]:
        """Archive once, as a new process would."""
        lake = open_lake(self.format, parse_location(self.to), self.catalog)
        with Client(self.url) as client:
            work = Archive(client, lake, names, CommitLimits(**limits), self.metrics, keeps_json=True)
            done, failed = work.archive(lambda: False)
        for ex in failed.values():
            raise ex
        return done

    def metric(self, name: str, event_type: str) -> float:
        return self.metrics.registry.get_sample_value(f"rioni_archive_{name}", {"event_type": event_type}) or 0.0

    def table(self, name: str, kind: str = "events") -> pa.Table:
        """A table of an event type in a folder; without rows and columns if it does not exist."""
        if self.format == "iceberg":
            return self.iceberg(name, kind)
        folder = Path(self.to) / (name if kind == "events" else f"_{kind}/{name}")
        if not folder.exists():
            return pa.table({})
        # A folder may have been made, and no table in it.
        return DeltaTable(folder).to_pyarrow_table() if DeltaTable.is_deltatable(str(folder)) else pa.table({})

    def rows_of_files(self, name: str) -> list[dict]:
        """The rows of the Parquet files of a table, as an engine finds them that does not know its format."""
        folder = Path(self.to) if self.format == "iceberg" else Path(self.to) / name
        files = [
            each for each in folder.rglob("*.parquet") if self.format != "iceberg" or _underscored(name) in str(each)
        ]
        return [row for each in files for row in pq.ParquetFile(each).read().to_pylist()]

    def iceberg(self, name: str, kind: str, **options: str) -> pa.Table:
        catalog = load_catalog("rioni", type="sql", uri=self.catalog or f"sqlite:///{self.to}/catalog.db", **options)
        namespace = "rioni" if kind == "events" else f"rioni_{kind}"
        listed = catalog.list_tables(namespace) if catalog.namespace_exists(namespace) else []
        # One of several event types with similar names has the plain name.
        tables = [table for each in listed if (table := catalog.load_table(each)).properties[EVENT_TYPE] == name]
        return tables[0].scan().to_arrow() if tables else pa.table({})

    def archived(self, name: str) -> list[str]:
        """All events in the tables of an event type, sorted."""
        found = []
        for kind, column in (("events", "_event"), ("quarantine", "event")):
            table = self.table(name, kind)
            found += table[column].to_pylist() if column in table.column_names else []
        return sorted(canonical(json.loads(each)) for each in found)
