"""Refused requests are counted together, and their records are bounded under a flood."""

import itertools

import pytest

from rioni.commands.system.client_activity import (
    BYTES_MAX,
    RECORDS_MAX,
    RECORDS_OF_KNOWN_MAX,
    RECORDS_PER_ADDRESS_MAX,
    RECORDS_PER_SUBJECT_MAX,
    SUBJECTS_MAX,
    WRITE_DENIALS_EVERY_S,
    DeniedRequests,
)
from rioni.domain.audit_events import KEPT_MAX
from rioni.domain.errors import Unavailable
from rioni.domain.ports.host import direct
from rioni.storage.sql.access_tables import SqlDenials
from tests.support.clock import ManualClock


class FullDisk:
    def add(self, _denials):
        raise Unavailable("full")


@pytest.fixture
def clock():
    return ManualClock(now_ms=1_700_000_000_000)


@pytest.fixture
def denied(broker, clock):
    return DeniedRequests(SqlDenials(broker.engine), clock, direct)


def record(denied, status=403, path="/audit", address="192.0.2.1", **others):
    denied.record(
        status,
        "GET",
        path,
        **{"subject": "jane", "address": address, "user_agent": "x", "flow_id": "f"} | others,
    )


def test_repeated_requests_are_one_record_with_a_count(denied, clock):
    """Reference audit#refused-requests."""
    for _ in range(3):
        record(denied)
        clock.advance(1_000)
    record(denied, 401, subject="", flow_id="a\0\nb" + 300 * "x")
    (_, other), (_, repeated) = denied.newest(None, 10)
    assert (repeated.count, repeated.path, repeated.actor) == (3, "/audit", "jane")
    assert repeated.first_at < repeated.last_at
    assert other.flow_id == "a??b" + 196 * "x"


@pytest.mark.parametrize("letter", ["x", "\xe9", "\u20ac", "\U0001f600", "\udc80", "\0"])
def test_a_record_has_a_bounded_number_of_bytes(denied, letter):
    """The number of records is bounded, so that of bytes is."""
    text = letter * 100_000
    denied.record(403, text, text, subject=letter * 255, address=text, user_agent=text, flow_id=text)
    denied.record(403, text, text, subject=letter * 255, address=text, user_agent=text, flow_id=text)
    ((_, found),) = denied.newest(None, 10)
    assert found.count == 2
    texts = (found.method, found.path, found.actor, found.address, found.user_agent, found.flow_id)
    sizes = [len(each.encode()) for each in texts]
    assert all(BYTES_MAX - 4 < size <= BYTES_MAX for size in sizes)


def test_a_flood_keeps_few_records_and_counts_all(denied):
    """Reference audit#refused-requests."""
    for number, (path, address) in enumerate(itertools.product(range(60), range(30))):
        record(denied, path=f"/{path}", address=f"192.0.2.{address}", flow_id=str(number), subject="")
    found = denied.newest(None, 1_000)
    assert sum(each.count for _, each in found) == 60 * 30
    assert len(found) <= RECORDS_MAX + 1
    for path in range(60):
        record(denied, path=f"/{path}", subject="")
    record(denied, address="192.0.2.2", subject="")
    of_flood = [each for _, each in denied.newest(None, 1_000)[: -len(found)] if each.address == "192.0.2.1"]
    assert len(of_flood) == RECORDS_PER_ADDRESS_MAX + 1
    assert max(each.count for each in of_flood) == 60 - RECORDS_PER_ADDRESS_MAX
    assert denied.newest(None, 1)[0][1].address == "192.0.2.2"


def test_only_the_newest_records_are_kept(denied, broker):
    """Reference audit#refused-requests."""
    store = SqlDenials(broker.engine)
    record(denied, subject="")
    ((_, one),) = denied.newest(None, 10)
    for _ in range(3):
        store.add([one] * (KEPT_MAX // 2))
    pages, before = 0, None
    while page := store.newest(before, 1_000):
        before, pages = page[-1][0], pages + len(page)
    assert pages == KEPT_MAX


def test_each_refusal_of_a_known_subject_is_kept_whatever_strangers_send(denied, broker):
    """Reference audit#refused-requests."""
    for number in range(97):
        for stranger in range(RECORDS_PER_ADDRESS_MAX):
            record(denied, 401, path=f"/{number}/{stranger}", subject="")
        record(denied, path=f"/event-types/{number}", subject="jane\nemployees")
        record(denied, path=f"/event-types/{number}", subject="jane\ncustomers")
    found = [each for _, each in denied.newest(None, 1_000)]
    assert sum(each.count for each in found if not each.actor) == 97 * RECORDS_PER_ADDRESS_MAX
    known = [each for each in found if each.actor]
    assert [(each.actor, each.count) for each in known] == [("jane", 1)] * 2 * 97
    assert {each.path for each in known} == {f"/event-types/{number}" for number in range(97)}
    ((_, stranger), *_) = [pair for pair in denied.newest(None, 1_000) if not pair[1].actor]
    SqlDenials(broker.engine).add([stranger] * 2 * KEPT_MAX)
    kept, before = [], None
    while page := denied.newest(before, 1_000):
        before = page[-1][0]
        kept += [each for _, each in page]
    assert [each for each in kept if each.actor] == known
    assert len(kept) == KEPT_MAX + len(known)


def test_a_flood_of_one_subject_names_it_and_leaves_room_for_others(denied):
    """Reference audit#refused-requests."""
    for number in range(2 * RECORDS_PER_SUBJECT_MAX):
        record(denied, path=f"/{number}", subject="eve")
    record(denied, path="/settings", subject="jane")
    found = [each for _, each in denied.newest(None, 10_000)]
    assert sum(each.count for each in found if each.actor == "eve") == 2 * RECORDS_PER_SUBJECT_MAX
    assert len(found) == RECORDS_PER_SUBJECT_MAX + 2
    assert [each.path for each in found if each.actor == "jane"] == ["/settings"]


def test_memory_is_bounded_however_many_subjects_are_refused(denied):
    for number in range(RECORDS_OF_KNOWN_MAX + 2 * SUBJECTS_MAX):
        record(denied, subject=f"subject-{number}")
    pages, before = [], None
    while page := denied.newest(before, 1_000):
        before = page[-1][0]
        pages += [each for _, each in page]
    assert sum(each.count for each in pages) == RECORDS_OF_KNOWN_MAX + 2 * SUBJECTS_MAX
    assert len(pages) == RECORDS_OF_KNOWN_MAX + SUBJECTS_MAX + 1


def test_records_are_written_every_few_seconds_and_a_failure_ends_nothing(denied, clock, broker):
    record(denied)
    denied.tick()
    assert SqlDenials(broker.engine).newest(None, 10) == []
    clock.advance(int(WRITE_DENIALS_EVERY_S) * 1_000)
    denied.tick()
    assert len(SqlDenials(broker.engine).newest(None, 10)) == 1
    failing = DeniedRequests(FullDisk(), clock, direct)
    record(failing)
    clock.advance(int(WRITE_DENIALS_EVERY_S) * 1_000)
    failing.tick()
    record(failing)
    with pytest.raises(Unavailable):
        failing.newest(None, 1)
