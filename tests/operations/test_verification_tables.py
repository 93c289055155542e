"""Each table of the data is covered by `rioni verify`, or its remarks name what can be changed unnoticed."""

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rioni.operations.verification import UNPROTECTED
from tests.support.builders import event_type_body
from tests.support.server import running_server
from tests.support.verification import findings


FOUND = "found"
"""Rows that are gone are a finding."""
DERIVED = "derived"
"""Made again when it is missing, or a note of the program for itself: no answer depends on it."""

TABLES: Mapping[str, str] = {
    "registry.db: alembic_version": FOUND,
    "registry.db: audit_log": FOUND,
    "registry.db: denials": "refused requests",
    "registry.db: ended_sessions": "ended sessions",
    "registry.db: event_types": FOUND,
    "registry.db: generations": DERIVED,
    "registry.db: head": FOUND,
    "registry.db: log": FOUND,
    "registry.db: log_cosignatures": "cosignatures",
    "registry.db: log_tiles": DERIVED,
    "registry.db: marks": FOUND,
    "registry.db: rebuild_tasks": DERIVED,
    "registry.db: rebuilds": DERIVED,
    "registry.db: schemas": FOUND,
    "registry.db: states": FOUND,
    "registry.db: storages": FOUND,
    "registry.db: subscription_event_types": FOUND,
    "registry.db: subscriptions": FOUND,
    "registry.db: timelines": FOUND,
    "registry.db: tracking": FOUND,
    "coordination.db: anchor": "marks of the stores",
    "coordination.db: partitions": "committed cursors",
    "coordination.db: resets": DERIVED,
    "coordination.db: sessions": DERIVED,
    "coordination.db: subscriptions": "committed cursors",
    "events.db: anchor": "marks of the stores",
    "events.db: chunks": FOUND,
    "events.db: claims": "idempotency keys",
    "events.db: closed_topics": "closed",
    "events.db: ids": "idempotency keys",
    "events.db: keys": "compaction",
    "events.db: partitions": FOUND,
    "events.db: superseded": "compaction",
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a stopped broker."""
    data = tmp_path_factory.mktemp("original") / "data"
    with running_server(data, "--workers", "1") as server, server.client() as http:
        body = event_type_body(name="order.created", partition_strategy="random")
        assert http.post("/event-types", json=body).status_code == 201
        event = {
            "order_id": "1",
            "metadata": {"eid": "00000000-0000-4000-8000-000000000000", "occurred_at": "2026-01-01T00:00:00Z"},
        }
        answer = http.post("/event-types/order.created/events", json=[event])
        assert answer.status_code == 200, answer.text
        subscription = {"owning_application": "shop", "event_types": ["order.created"]}
        assert http.post("/subscriptions", json=subscription).status_code == 201
    return data


def tables(data: Path) -> Iterator[tuple[str, str]]:
    for file in ("registry.db", "coordination.db", "events.db"):
        with contextlib.closing(sqlite3.connect(data / file)) as connection:
            query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            yield from ((file, name) for (name,) in connection.execute(query))


def test_each_table_is_listed(original):
    assert {f"{file}: {table}" for file, table in tables(original)} == TABLES.keys()


@pytest.mark.parametrize("place", [place for place, covered in TABLES.items() if covered == FOUND])
def test_rows_that_are_gone_are_found(original, tmp_path, place):
    file, _, table = place.partition(": ")
    data = shutil.copytree(original, tmp_path / "data")
    with contextlib.closing(sqlite3.connect(data / file)) as connection, connection:
        assert connection.execute(f'DELETE FROM "{table}"').rowcount
    assert findings(data)


@pytest.mark.parametrize(("place", "words"), [each for each in TABLES.items() if each[1] not in {FOUND, DERIVED}])
def test_remarks_name_the_others(place, words):
    assert [remark for remark in UNPROTECTED if words in remark], place
