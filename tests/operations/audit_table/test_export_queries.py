"""The queries that the guide has for auditors, on a table whose answers are known."""

import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from uuid import uuid4

import msgspec
import pytest

from rioni.domain.access.authorization import Attribute
from rioni.domain.event_types.event_type import EventType, EventTypeChanged, EventTypeCreated, EventTypeDeleted
from rioni.domain.events import DomainEvent, Origin
from tests.support.history import Author, entries
from tests.support.log import append


pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

GUIDE = Path(__file__).parents[3] / "docs/operating/audit-table.md"
# DuckDB downloads `delta_scan` when it is used first; here the package deltalake reads the table in its place.
SCRIPT = """
import duckdb, json, sys
from deltalake import DeltaTable
duckdb.register("read", DeltaTable("audit").to_pyarrow_dataset())
duckdb.sql("CREATE MACRO delta_scan(path) AS TABLE SELECT * FROM read")
*statements, query = json.load(sys.stdin)
for each in statements:
    duckdb.sql(each)
json.dump(duckdb.sql(query).fetchall(), sys.stdout)
"""


def asked(folder: Path, query: int) -> list[list[str | None]]:
    """Run a query of the guide as an auditor does, in the folder above the table."""
    view, *queries = [part.split("```")[0] for part in GUIDE.read_text().split("```sql\n")[1:]]
    statements = [each for each in view.split(";") if each.strip()]
    # In a separate process, since the module complains when its process ends.
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps([*statements, queries[query]]),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: list[list[str | None]] = json.loads(done.stdout)
    return answer


def readable_by(event_type: EventType, *readers: str) -> EventType:
    assert event_type.authorization is not None
    attributes = tuple(Attribute("user", name) for name in readers)
    section = msgspec.structs.replace(event_type.authorization, readers=attributes)
    return msgspec.structs.replace(event_type, name="order.created", authorization=section)


def by(actor: str, time: str, *events: DomainEvent) -> tuple[Origin, Sequence[DomainEvent]]:
    moment = datetime.fromisoformat(time).replace(tzinfo=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Origin(actor=actor, client="10.0.0.1 curl", flow_id="", command_id=str(uuid4()), recorded_at=moment), events


def test_the_queries_of_auditors(broker, tmp_path):
    created, *_ = Author(Random(1)).command("create_event_type")[1]
    assert isinstance(created, EventTypeCreated)
    early, middle, late = (
        readable_by(created.event_type, *readers) for readers in (("ann",), ("ann", "ben"), ("cat",))
    )
    history = [
        by("root", "2026-03-01", EventTypeCreated(name="order.created", event_type=early)),
        by("jane", "2026-03-24T09:00", EventTypeChanged(name="order.created", event_type=middle)),
        by("jane", "2026-03-25T09:00", EventTypeChanged(name="order.created", event_type=late)),
        by("root", "2026-03-26", EventTypeDeleted(name="order.created")),
    ]
    with broker.engine.begin() as connection:
        append(connection, entries(history, first=broker.end + 1))
    broker.export(tmp_path / "audit")

    first, second, third = "2026-03-01T00:00:00.000Z", "2026-03-24T09:00:00.000Z", "2026-03-25T09:00:00.000Z"
    assert asked(tmp_path, 0) == [
        ["user", "ann", first, second],
        ["user", "ann", second, third],
        ["user", "ben", second, third],
    ]
    changes = asked(tmp_path, 1)
    assert [row[:4] for row in changes] == [
        [time, "event-type.changed", "event-type", "order.created"] for time in (second, third)
    ]
    assert json.loads(changes[0][4] or "") == [
        {"op": "add", "path": "/authorization/readers/1", "value": {"data_type": "user", "value": "ben"}}
    ]
    (drift,) = asked(tmp_path, 2)
    assert drift[:2] == ["event-type", "order.created"]
    assert [json.loads(state or "")["authorization"]["readers"][-1]["value"] for state in drift[2:]] == ["ann", "ben"]
