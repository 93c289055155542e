import itertools
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, insert, select, update

from rioni.domain.errors import ConcurrentChange, Unavailable
from rioni.domain.events import stream_id
from rioni.domain.hash_chain import GENESIS, link
from rioni.sql.log_tables import HEAD, LOG
from rioni.storage.log.event_log import SqlEventLog
from rioni.storage.log.recorder import UnreadableEntry
from rioni.storage.log.verification import verify
from rioni.storage.sql.engines import create_engine, writing
from tests.contracts.event_log import ORIGIN, TOPICS, EventLogContract, Noted, note, read_all
from tests.storage import log_writer


@pytest.fixture
def log(engine: Engine) -> Iterator[SqlEventLog]:
    log = SqlEventLog(engine, TOPICS)
    yield log
    log.close()


@pytest.fixture
def url(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def clear(engine: Engine) -> None:
    """Empty the log, which only tests do."""
    with writing(engine) as connection:
        connection.execute(delete(LOG))
        connection.execute(update(HEAD).values(position=0, hash=GENESIS))


class TestSqlEventLog(EventLogContract):
    @pytest.fixture
    def other_log(self, url: str) -> Iterator[SqlEventLog]:
        """A log with its own connections, as in another process."""
        other = SqlEventLog(create_engine(url), TOPICS)
        yield other
        other.close()


# --- stored rows ---


def test_the_hash_of_a_row_can_be_checked_with_sha256_alone(log: SqlEventLog):
    note(log, "a", "größe")
    with log.engine.connect() as connection:
        row = connection.execute(select(LOG)).one()
    assert row.data == '{"class_version":1,"name":"a","text":"größe"}'.encode()
    assert row.stream == str(stream_id("note", "a")) == "4e0d509b-7ab4-5383-bda3-70b5ee8f8b38"
    fields = [
        "1",
        row.stream,
        "1",
        "note.noted",
        ORIGIN.recorded_at,
        "jürgen",
        "127.0.0.1",
        "flow-1",
        ORIGIN.command_id,
    ]
    assert bytes(row.hash) == link(GENESIS, (1, row.stream, 1, *fields[3:], bytes(row.data)))
    assert log.head() == (1, bytes(row.hash))


@pytest.mark.parametrize("topics", [{}, {"note.other": Noted}])
def test_an_unknown_topic_is_named_with_its_position(log: SqlEventLog, topics):
    note(log, "a", "1", "2")
    stranger = SqlEventLog(log.engine, topics)
    with pytest.raises(UnreadableEntry, match=r"position 2 .* topic note\.noted\. Run `rioni verify`"):
        stranger.entries(1, 10)
    # Requests to a running node of an older version are answered 503 with this text.
    with pytest.raises(Unavailable, match=r"position 1 "), stranger.transaction() as transaction:
        list(transaction.entries(0))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"class_version":1}', b'{"class_version":0,"name":"a"}', b"\xff"])
def test_invalid_data_is_named_with_its_position(log: SqlEventLog, data: bytes):
    note(log, "a", "1")
    with writing(log.engine) as connection:
        connection.execute(update(LOG).values(data=data))
    with pytest.raises(UnreadableEntry, match=r"position 1 .* note\.noted: .*rioni verify"):
        log.entries(0, 10)


def test_a_database_without_a_log_is_unavailable(empty_url: str):
    log = SqlEventLog(create_engine(empty_url), TOPICS)
    log.engine.connect().close()
    with pytest.raises(Unavailable, match=r"rioni (serve|verify)"):
        log.head()
    with pytest.raises(Unavailable, match=r"rioni (serve|verify)"):
        log.entries(0, 1)
    with pytest.raises(Unavailable, match=r"rioni (serve|verify)"), log.transaction():
        pass
    log.close()


# --- any sequence of appends ---


APPENDS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.integers(0, 3), st.text(max_size=5)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(appends=APPENDS, data=st.data())
def test_any_sequence_of_appends_leaves_a_gapless_verified_log(engine: Engine, appends, data):
    clear(engine)
    logs = [SqlEventLog(engine, TOPICS) for _ in range(3)]
    versions: dict[str, int] = defaultdict(int)
    expected = []
    for writer, name, count, text in appends:
        if data.draw(st.booleans(), label="conflict"):
            with pytest.raises(ConcurrentChange):
                note(logs[writer], name, text, version=versions[name] + 1)
        with logs[writer].transaction() as transaction:
            events = [Noted(name=name, text=text)] * count
            expected += transaction.append(stream_id("note", name), versions[name], events, ORIGIN)
        versions[name] += count
    for log in logs:
        assert read_all(log) == expected
        assert [entry.position for entry in expected] == list(range(1, len(expected) + 1))
        assert log.head().position == len(expected)
    assert not list(verify(engine, TOPICS))
    cut_to(engine, data.draw(st.integers(0, len(expected))))
    assert not list(verify(engine, TOPICS)), "a prefix of a log is a log"
    for log in logs:
        log._head.close()


def cut_to(engine: Engine, position: int) -> None:
    with writing(engine) as connection:
        last = connection.scalar(select(LOG.c.hash).where(LOG.c.position == position)) or GENESIS
        connection.execute(delete(LOG).where(LOG.c.position > position))
        connection.execute(update(HEAD).values(position=position, hash=last))


# --- verification, in addition to tests/properties/test_log.py ---


def test_unreadable_text_is_found(sqlite_engine: Engine):
    log = SqlEventLog(sqlite_engine, TOPICS)
    note(log, "a", "1", "2", "3")
    with writing(sqlite_engine) as connection:
        connection.exec_driver_sql("UPDATE log SET actor = CAST(x'6aff' AS TEXT) WHERE position = 2")
    assert [finding.position for finding in verify(sqlite_engine, TOPICS)] == [2]
    with pytest.raises(Exception, match="UTF-8"):
        log.entries(0, 10)
    log.close()


def test_a_finding_names_position_problem_and_remedy(log: SqlEventLog):
    note(log, "a", "1", "2", "3")
    with writing(log.engine) as connection:
        connection.execute(delete(LOG).where(LOG.c.position == 2))
        connection.execute(update(LOG).where(LOG.c.position == 3).values(topic="note.later"))
    missing, alone, unknown = map(str, verify(log.engine, TOPICS))
    assert missing.startswith("position 2: 1 entry is missing; stop the broker and restore a backup")
    assert alone.startswith(f"position 3: version 3 of stream {stream_id('note', 'a')} does not follow another one; ")
    assert unknown.startswith("position 3: ")
    assert unknown.endswith("note.later; use the version of Rioni that wrote it, or a newer one")


def test_verification_goes_on_after_a_changed_entry(log: SqlEventLog):
    note(log, "a", *map(str, range(500)))
    with writing(log.engine) as connection:
        connection.execute(update(LOG).where(LOG.c.position.in_([100, 300, 450])).values(actor="mallory"))
    assert [finding.position for finding in verify(log.engine, TOPICS)] == [100, 300, 450]


def test_entries_appended_during_verification_are_left_for_the_next_one(log: SqlEventLog):
    note(log, "a", *map(str, range(300)))
    with writing(log.engine) as connection:
        connection.execute(update(LOG).where(LOG.c.position == 1).values(actor="mallory"))
    findings = verify(log.engine, TOPICS)
    assert next(findings).position == 1
    note(log, "b")
    assert list(findings) == []


# --- processes ---


@pytest.mark.slow
def test_concurrent_appends_of_processes_are_neither_lost_nor_interleaved(log: SqlEventLog, url: str):
    writers, appends = 4, 40
    processes = [
        subprocess.Popen(log_writer.command(url, f"w{number}", appends), cwd=log_writer.ROOT, stdout=subprocess.PIPE)
        for number in range(writers)
    ]
    reported = []
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        reported += [line.split() for line in output.decode().splitlines()]
    entries = read_all(log)
    assert [entry.position for entry in entries] == list(range(1, 2 * writers * appends + 1))
    assert len(reported) == writers * appends
    for name, number, first, second in reported:
        assert int(second) == int(first) + 1
        pair = entries[int(first) - 1 : int(second)]
        assert [entry.event for entry in pair] == [Noted(name=name, text=f"{number} {each}") for each in "ab"]
    assert not list(verify(log.engine, TOPICS))


@pytest.mark.slow
def test_a_killed_process_leaves_whole_transactions_including_all_that_it_reported(log: SqlEventLog, url: str):
    expected: dict[str, int] = {}
    for run, lines in enumerate((1, 20, 60)):
        name = f"run {run}"
        with subprocess.Popen(log_writer.command(url, name, 0), cwd=log_writer.ROOT, stdout=subprocess.PIPE) as process:
            printed = [line.decode() for line in itertools.islice(process.stdout, lines)]
            process.kill()
            printed += [line.decode() for line in process.stdout]
        expected[name] = len(printed)
        assert not list(verify(log.engine, TOPICS))
        # The next writer does not wait for the dead one.
        note(log, f"after {name}")
    entries = read_all(log)
    assert [entry.position for entry in entries] == list(range(1, len(entries) + 1))
    for name, reported in expected.items():
        texts = [entry.event.text for entry in entries if entry.event.key == name]
        # One transaction more than was reported may be stored: it was committed, and the report was lost.
        assert reported <= len(texts) // 2 <= reported + 1
        assert texts == [f"{number} {each}" for number in range(len(texts) // 2) for each in "ab"]


@pytest.mark.slow
def test_the_hub_keeps_running_while_greenlets_wait_for_the_lock(sqlite_engine: Engine):
    url = sqlite_engine.url.render_as_string()
    command = [sys.executable, "-X", "dev", "-m", "tests.storage.gevent_log_writer", url]
    done = subprocess.run(command, cwd=log_writer.ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "all is well\n", done.stderr
    assert "ResourceWarning" not in done.stderr


def test_a_position_taken_by_a_foreign_writer_is_an_error_and_not_overwritten(log: SqlEventLog):
    note(log, "a")
    with writing(log.engine) as connection:
        row = dict(connection.execute(select(LOG)).mappings().one())
        connection.execute(insert(LOG).values(row | {"position": 2, "version": 2}))
    with pytest.raises(Exception, match=r"(?i)unique"):
        note(log, "b")
    assert log.head().position == 1
