"""Every appended log verifies, and every manipulation of the database is found."""

import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Self

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rioni.domain.aggregates import TOPICS
from rioni.domain.errors import ConcurrentChange
from rioni.sql.log_tables import LOG
from rioni.storage.log.event_log import SqlEventLog
from rioni.storage.log.verification import LogDefect, verify
from rioni.storage.sql.engines import create_engine
from rioni.storage.sql.migration import upgrade
from tests.support.builders import origin
from tests.support.history import Author, entries, histories


ENTRIES = 12
COLUMNS = [column.name for column in LOG.columns]

positions = st.integers(1, ENTRIES)
stored_values = st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(codec="utf-8"), max_size=40) | st.binary()


class Copy:
    """A copy of a database, which can be manipulated."""

    def __init__(self, original: Path) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(shutil.copy(original, self._folder.name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def open(self) -> SqlEventLog:
        return SqlEventLog(create_engine(f"sqlite:///{self.path}"), TOPICS)

    def tamper(self, *statements: tuple[str, tuple]) -> None:
        """Change the database directly."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            for statement, values in statements:
                try:
                    connection.execute(statement, values)
                except sqlite3.IntegrityError:
                    assume(False)

    def rows(self) -> list[tuple]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute("SELECT * FROM log ORDER BY position").fetchall()

    def findings(self) -> list[LogDefect]:
        log = self.open()
        with closing(log):
            return list(verify(log.engine, TOPICS))


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "registry.db"
    engine = create_engine(f"sqlite:///{path}")
    upgrade(engine)
    engine.dispose()
    return path


@pytest.fixture(scope="module")
def written(empty: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of many streams, some of them with several versions."""
    path = Path(shutil.copy(empty, tmp_path_factory.mktemp("written")))
    author = Author(Random(3))
    commands = [author.command("create_event_type"), *(author.command("change_event_type") for _ in range(4))]
    commands += [author.command("create_subscription"), *(author.command("change_settings") for _ in range(4))]
    log = SqlEventLog(create_engine(f"sqlite:///{path}"), TOPICS)
    with closing(log):
        for entry in entries(commands):
            append(log, entry.event.stream, entry.version - 1, [entry.event], entry.origin)
        assert log.head().position == ENTRIES
    return path


def append(log: SqlEventLog, *args):
    with log.transaction() as transaction:
        return transaction.append(*args)


@pytest.fixture
def copied(written: Path) -> Iterator[Copy]:
    with Copy(written) as copy:
        yield copy


@given(history=histories(20), data=st.data())
def test_entries_of_several_writers_are_in_one_chain_without_gaps(empty, history, data):
    with Copy(empty) as copy:
        writers = [copy.open() for _ in range(3)]
        appended_entries = []
        for command_origin, events in history:
            writer = data.draw(st.sampled_from(writers))
            with writer.transaction() as transaction:
                for stream, group in groupby(events, lambda event: event.stream):
                    version = Counter(entry.stream for entry in appended_entries)[stream]
                    appended_entries += transaction.append(stream, version, list(group), command_origin)
        assert [entry.position for entry in appended_entries] == list(range(1, len(appended_entries) + 1))
        assert all(writer.entries(0, 1_000) == appended_entries for writer in writers)
        assert {writer.head().position for writer in writers} == {len(appended_entries)}
        for writer in writers:
            writer.close()
        assert copy.findings() == []


@given(history=histories(8), wrong=st.integers(-1, 3))
def test_an_append_with_a_wrong_version_writes_nothing(empty, history, wrong):
    with Copy(empty) as copy, closing(copy.open()) as log:
        for entry in entries(history):
            version = entry.version - 1
            if wrong not in (version, version + 1):
                before = log.head()
                with pytest.raises(ConcurrentChange):
                    append(log, entry.stream, wrong, [entry.event], origin())
                assert log.head() == before
            append(log, entry.stream, version, [entry.event], entry.origin)
        assert list(verify(log.engine, TOPICS)) == []


@given(length=st.integers(0, ENTRIES))
def test_every_prefix_of_a_log_verifies(written, length):
    with Copy(written) as copy:
        last = copy.rows()[length - 1][-1] if length else bytes(32)
        copy.tamper(
            ("DELETE FROM log WHERE position > ?", (length,)),
            ("UPDATE head SET position = ?, hash = ?", (length, last)),
        )
        assert copy.findings() == []


@given(position=positions, column=st.sampled_from(COLUMNS), value=stored_values)
def test_a_changed_field_is_found_at_its_position(written, position, column, value):
    with Copy(written) as copy:
        before = copy.rows()
        copy.tamper((f"UPDATE log SET {column} = ? WHERE position = ?", (value, position)))
        after = copy.rows()
        assume(after != before)
        # The finding names the original or the new position.
        assert first(copy.findings()) == min({position} | {row[0] for row in after} - {row[0] for row in before})


@given(position=positions, column=st.sampled_from(COLUMNS[1:]), data=st.data())
def test_a_field_with_one_character_changed_is_found_at_its_position(written, position, column, data):
    with Copy(written) as copy:
        old = copy.rows()[position - 1][COLUMNS.index(column)]
        if isinstance(old, int):
            new = old + 1
        else:
            index = data.draw(st.integers(0, len(old) - 1))
            other = "~" if isinstance(old, str) else bytes([old[index] ^ 1])
            new = old[:index] + other + old[index + 1 :]
        copy.tamper((f"UPDATE log SET {column} = ? WHERE position = ?", (new, position)))
        assert first(copy.findings()) == position


@given(position=positions, column=st.sampled_from(COLUMNS[3:-2]), value=st.binary(min_size=1, max_size=8))
def test_corrupted_text_is_found_at_its_position(written, position, column, value):
    with Copy(written) as copy:
        before = copy.rows()
        copy.tamper((f"UPDATE log SET {column} = CAST(? AS TEXT) WHERE position = ?", (value, position)))
        assume(before[position - 1][COLUMNS.index(column)].encode() != value)
        assert first(copy.findings()) == position


@given(position=positions, count=st.integers(1, ENTRIES))
def test_removed_entries_are_named_and_counted(written, position, count):
    with Copy(written) as copy:
        copy.tamper(("DELETE FROM log WHERE position BETWEEN ? AND ?", (position, position + count - 1)))
        finding = min(copy.findings())
        assert finding.position == position
        assert str(min(count, ENTRIES - position + 1)) in finding.text


@given(pair=st.lists(positions, min_size=2, max_size=2, unique=True))
def test_swapped_entries_are_found_at_the_first_of_them(written, pair):
    one, other = pair
    with Copy(written) as copy:
        move = "UPDATE log SET position = ? WHERE position = ?"
        copy.tamper((move, (1_000, one)), (move, (one, other)), (move, (other, 1_000)))
        assert first(copy.findings()) == min(pair)


@given(position=st.integers(-ENTRIES, 3 * ENTRIES))
def test_an_added_entry_is_found(written, position):
    with Copy(written) as copy:
        *_, (_, _, _, *fields) = copy.rows()
        copy.tamper((f"INSERT INTO log VALUES (?, 'x', 1, {', '.join('?' * len(fields))})", (position, *fields)))
        assert copy.findings()


@given(position=st.integers(0, 2 * ENTRIES), last=st.binary(max_size=40) | st.text(max_size=3))
def test_a_changed_head_is_found(written, position, last):
    with Copy(written) as copy:
        copy.tamper(("UPDATE head SET position = ?, hash = ?", (position, last)))
        assert copy.findings()


@pytest.mark.parametrize(
    "statement", ["DELETE FROM head", "INSERT INTO head SELECT 2, position, hash, format FROM head"]
)
def test_a_head_that_is_not_one_row_is_found(copied, statement):
    copied.tamper((statement, ()))
    assert first(copied.findings()) >= 0


def test_an_intact_log_has_no_findings(copied):
    assert copied.findings() == []


def first(findings: list[LogDefect]) -> int:
    assert findings
    return min(finding.position for finding in findings)
