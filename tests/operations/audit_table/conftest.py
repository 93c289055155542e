"""A data directory whose log grows, and audit tables of it."""

import contextlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from sqlalchemy import create_engine, select

from rioni.config.settings import Config
from rioni.domain.audit_events import shown_state
from rioni.domain.json_patch import json_patch
from rioni.installation.database import database_url
from rioni.installation.infrastructure import build_infrastructure
from rioni.operations import verify_export
from rioni.operations.audit_table.export import TableOrder, TableReport, export_table
from rioni.projections.generations.rebuilds import Progress
from rioni.projections.queries.audit_log import AuditFilter, entries
from rioni.server.log_tree import build_checkpoint_signer
from rioni.server.startup import prepare_startup
from rioni.sql.log_tables import HEAD
from tests.support.history import Author
from tests.support.history import entries as history
from tests.support.log import append


class Broker:
    """The data directory of a broker that is not running, with a history of several weeks."""

    def __init__(self, data: Path) -> None:
        self.config = Config(data=data)
        with prepare_startup(self.config) as directory, contextlib.closing(self._base(directory)) as base:
            self.key = str(build_checkpoint_signer(base).verifier())
        self.engine = create_engine(database_url(self.config))
        self._coming = history(Author(Random(5), seconds_between=3_600).commands(), first=self.end + 1)

    @classmethod
    def of(cls, data: Path) -> "Broker":
        """A data directory that is there, and does not grow."""
        broker = cls.__new__(cls)
        broker.config = Config(data=data)
        broker.engine = create_engine(database_url(broker.config))
        return broker

    def _base(self, directory: Any) -> Any:
        return build_infrastructure(self.config, directory)

    @property
    def end(self) -> int:
        with self.engine.connect() as connection:
            return connection.scalar(select(HEAD.c.position)) or 0

    def grow(self, count: int) -> None:
        """Append entries to the log."""
        with self.engine.begin() as connection:
            append(connection, islice(self._coming, count))

    def export(self, folder: Path, progress: Progress = lambda *_: None) -> TableReport:
        return export_table(self.config, TableOrder(folder), progress)

    def expected(self) -> list[dict[str, Any]]:
        """The rows that a table of the whole log has, from the live read models; without the fields of the log."""
        return [_expected(row) for row in entries(self.engine.connect, AuditFilter())]


def _expected(row: dict[str, Any]) -> dict[str, Any]:
    before, after = (shown_state(row["resource_type"], row[name]) for name in ("before", "after"))
    names = ("position", "recorded_at", "actor", "flow_id", "topic", "resource_type", "resource", "user_agent", "realm")
    derived = {"address": row["client"], "changes": json_patch(before, after), "state": after}
    return {name: row[name] for name in names} | derived


def rows(table: Path) -> list[dict[str, Any]]:
    """The rows of a table in the order of their positions."""
    manifests, *_ = verify_export.log_of(table)
    return list(verify_export.rows_of(table, [file for each in manifests for file in each["files"]]))


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a table, in the form of `Broker.expected`."""
    texts = {name: msgspec.json.decode(row[name]) for name in ("changes", "state") if isinstance(row[name], str)}
    inner = {"stream", "version", "client", "command_id", "data", "day"}
    return {name: value for name, value in (row | texts).items() if name not in inner}


@pytest.fixture
def broker(tmp_path: Path, spark: object) -> Iterator[Broker]:
    broker = Broker(tmp_path / "data")
    yield broker
    broker.engine.dispose()
