"""Exports of the audit trail: complete, in short transactions, and with a link if they end early."""

import contextlib
import json
import threading
from types import SimpleNamespace

import pytest

from rioni.commands.system.storages import SwitchFeature
from rioni.domain.access.authorization import NOBODY, UNAUTHENTICATED
from rioni.domain.ports.host import direct
from rioni.http.caller import Caller
from rioni.http.resources import audit
from rioni.http.resources.audit import EXPORT_S, AuditExport
from rioni.projections.queries.audit_log import AuditQuery, PageStart
from rioni.storage.sql.engines import reading
from tests.support.broker import running_broker


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path / "data") as broker:
        for number in range(5):
            broker.do(SwitchFeature(feature="kpi_collection", enabled=number % 2 == 0))
        yield broker


class Client(Caller):
    expired = False

    def is_expired(self):
        return self.expired


@pytest.fixture
def begin(broker, monkeypatch):
    """Begins an export in pages of two; returns it with what it depends on."""
    monkeypatch.setattr(audit, "ENTRIES_PER_PAGE", 2)

    def begin(subject=UNAUTHENTICATED, **query):
        transactions = set()

        def ask(function, *args):
            with reading(broker.engine) as connection, contextlib.ExitStack() as ending:
                transactions.add(connection)
                ending.callback(transactions.discard, connection)
                return function(connection, *args)

        parts = SimpleNamespace(
            query=ask,
            compute_pool=direct,
            clock=broker.clock,
            stopping=threading.Event(),
            access=broker.access,
            transactions=transactions,
            caller=Client(subject),
        )
        place = PageStart(ascending=True)
        return parts, AuditExport(
            parts, AuditQuery(**query), place, parts.caller, "shop", "/audit?after={}".format, states=False
        )

    return begin


def lines(pieces):
    return [json.loads(line) for piece in pieces for line in piece.splitlines()]


def test_an_export_has_every_entry_and_holds_no_transaction_between_pages(broker, begin):
    """Reference audit#audit-export."""
    parts, export = begin()
    seen = []
    for piece in export:
        assert not parts.transactions
        seen += lines([piece])
    assert [each["position"] for each in seen] == list(range(1, broker.log.position() + 1))


@pytest.mark.parametrize("ending", ["deadline", "stopping", "expired", "rights"])
def test_an_export_that_must_end_says_where_to_go_on(broker, begin, ending):
    """Reference audit#audit-export."""
    parts, export = begin()
    assert next(export) == b""
    assert len(lines([next(export)])) == 2
    match ending:
        case "deadline":
            broker.clock.advance(EXPORT_S * 1_000)
        case "stopping":
            parts.stopping.set()
        case "expired":
            parts.caller.expired = True
        case "rights":
            parts.caller.subject = NOBODY
    assert lines(export) == [{"_links": {"next": {"href": "/audit?after=2"}}}]


def test_a_closed_export_reads_no_further(begin):
    _, export = begin()
    next(export)
    export.close()
    assert list(export) == []


def test_an_export_without_entries_is_empty(begin):
    _, export = begin(actor="no such")
    assert list(export) == [b""]
