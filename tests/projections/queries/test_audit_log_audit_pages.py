"""Pages of the audit trail equal a filter by brute force, whatever the bounds are."""

from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, select

from rioni.domain.events import realm_of
from rioni.projections.queries import audit_log
from rioni.projections.queries.audit_log import AuditQuery, PageStart, first_since, page
from rioni.projections.tables import AUDIT_LOG
from tests.support.history import Author, entries
from tests.support.log import append, create_tables


COMMANDS = 150


class Rows(list):
    """Rows that a failing example does not print."""

    def __repr__(self) -> str:
        return f"{len(self)} rows"


@pytest.fixture(scope="module")
def engine():
    engine = create_engine("sqlite://")
    create_tables(engine)
    with engine.begin() as connection:
        append(connection, entries(islice(Author(Random(7)).commands(), COMMANDS)))
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def everything(engine):
    """All rows of the audit log."""
    with engine.connect() as connection:
        rows = connection.execute(select(AUDIT_LOG).order_by(AUDIT_LOG.c.position)).mappings()
        return Rows(map(dict, rows))


FILTERS = {
    "resource": lambda row: (row["resource_type"], row["resource"]),
    "kind": lambda row: row["resource_type"],
    "topic": lambda row: row["topic"],
    "actor": lambda row: row["actor"],
    "realm": lambda row: realm_of(row["client"]),
    "flow_id": lambda row: row["flow_id"],
    "since": lambda row: row["recorded_at"],
    "until": lambda row: row["recorded_at"],
}
CHOICES = st.dictionaries(st.sampled_from(sorted(FILTERS)), st.none() | st.integers(0, COMMANDS), max_size=5)
"""Filters, each with the place of an entry that has the value; None for the one that they share."""


def query_of(everything, choices, shared):
    wanted = {name: FILTERS[name](everything[shared if place is None else place]) for name, place in choices.items()}
    if "actor" not in wanted:
        wanted.pop("realm", None)
    return AuditQuery(**wanted)


def matches(row, wanted):
    return (
        wanted.resource in (None, (row["resource_type"], row["resource"]))
        and wanted.kind in (None, row["resource_type"])
        and wanted.topic in (None, row["topic"])
        and wanted.actor in (None, row["actor"])
        and wanted.realm in (None, realm_of(row["client"]))
        and wanted.flow_id in (None, row["flow_id"])
        and (wanted.since is None or row["recorded_at"] >= wanted.since)
        and (wanted.until is None or row["recorded_at"] < wanted.until)
    )


@given(
    CHOICES,
    st.integers(0, COMMANDS),
    st.booleans(),
    st.integers(1, 60),
    st.integers(1, 40),
    st.sampled_from([1, 5_000, 10**9]),
)
def test_every_matching_entry_is_on_one_page_in_both_directions(
    engine, everything, choices, shared, ascending, limit, scanned_max, page_bytes_max
):
    wanted = query_of(everything, choices, shared)
    expected = [row for row in everything if matches(row, wanted)][:: 1 if ascending else -1]
    with pytest.MonkeyPatch.context() as patch, engine.connect() as connection:
        patch.setattr(audit_log, "SCANNED_MAX", scanned_max)
        patch.setattr(audit_log, "PAGE_BYTES_MAX", page_bytes_max)
        found, place = [], PageStart(ascending)
        while True:
            part = page(connection, wanted, place, limit)
            assert len(part.rows) <= limit
            found += part.rows
            if part.next is None:
                break
            place = PageStart(ascending, after=part.next)
        assert found == expected
        back = list(reversed(part.rows))
        while part.prev is not None:
            part = page(connection, wanted, PageStart(ascending, before=part.prev), limit)
            back += reversed(part.rows)
        assert back == expected[::-1]
        assert part.prev is None


def test_the_page_before_another_one_leads_back_to_it(engine):
    with engine.connect() as connection:
        first = page(connection, AuditQuery(), PageStart(), 10)
        second = page(connection, AuditQuery(), PageStart(after=first.next), 10)
        assert first.prev is None
        again = page(connection, AuditQuery(), PageStart(before=second.prev), 10)
        assert again.rows == first.rows
        assert page(connection, AuditQuery(), PageStart(after=again.next), 10).rows == second.rows


def test_times_become_positions(engine, everything):
    times = sorted({row["recorded_at"] for row in everything} | {"2000", "2100"})
    with engine.connect() as connection:
        for time in times:
            expected = next((row["position"] for row in everything if row["recorded_at"] >= time), len(everything) + 1)
            assert first_since(connection, time) == expected


def test_no_page_looks_at_more_entries_than_the_bound(engine, everything, monkeypatch):
    """Two filters that match nothing together: the page is empty and says where to go on."""
    monkeypatch.setattr(audit_log, "SCANNED_MAX", 5)
    actors = {row["actor"] for row in everything if row["resource_type"] == "storage"}
    other = ({row["actor"] for row in everything} - actors or {"x"}).pop()
    wanted = AuditQuery(actor=other, kind="subscription", topic="event-type.changed")
    with engine.connect() as connection:
        first = page(connection, wanted, PageStart(), 100)
    assert first.rows == []
    assert first.next is not None
