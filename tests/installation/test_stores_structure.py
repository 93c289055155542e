"""`rioni verify` compares the tables, indexes and triggers of each file with the release, and reads all pages."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from rioni.commands.event_types import CreateEventType
from rioni.config.settings import Config
from rioni.domain.system.anchors import DataMismatch
from rioni.installation.anchoring import StoreMarks
from rioni.installation.infrastructure import build_infrastructure
from rioni.server.startup import prepare_startup
from rioni.storage.embedded.coordination.database import CoordinationDatabase
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.structure import page_findings, table_findings, type_findings
from rioni.storage.sql.migration import NEW_SQLITE
from tests.support.builders import event_type_spec
from tests.support.verification import findings, problems


SCHEMAS = {
    "registry.db": NEW_SQLITE.read_text(encoding="utf-8"),
    "coordination.db": CoordinationDatabase.schema,
    "events.db": EventsDatabase.schema,
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a broker that was stopped, with an event type and events."""
    data = tmp_path_factory.mktemp("original") / "data"
    config = Config(data=data)
    with prepare_startup(config) as directory, contextlib.closing(build_infrastructure(config, directory)) as base:
        base.bus.dispatch(CreateEventType(spec=event_type_spec(name="a")), base.system_context())
        base.registry.refresh()
        base.adapters.stores.of("default").append(base.registry.timelines("a").active.topic, {0: [b'{"n":1}'] * 10})
        StoreMarks(base).note(everything=True)
    assert not problems(config)
    return data


def changed(original: Path, tmp_path: Path, file: str, statement: str) -> Path:
    """A copy of a file, in which a statement was run."""
    path = tmp_path / file
    path.unlink(missing_ok=True)
    shutil.copyfile(original / file, path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"PRAGMA journal_mode = DELETE; {statement}")
    return path


def statements(schema: str) -> list[tuple[str, str]]:
    """Changes of each part of a schema, each with what the finding has to name."""
    found = []
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema)
        parts = connection.execute(
            "SELECT type, name, tbl_name FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        )
        for kind, name, table in parts:
            if name == "alembic_version":
                continue
            found.append((f'DROP {kind} "{name}"', table))
            if kind == "table":
                column = connection.execute(f'PRAGMA table_info("{name}")').fetchone()[1]
                found += [
                    (f'ALTER TABLE "{name}" ADD COLUMN further TEXT', table),
                    (f'ALTER TABLE "{name}" RENAME TO elsewhere', table),
                    (f'CREATE UNIQUE INDEX further ON "{name}" ("{column}")', table),
                    (f'CREATE TRIGGER t BEFORE INSERT ON "{name}" BEGIN SELECT raise(ignore); END', table),
                ]
    return found


@pytest.mark.parametrize("file", SCHEMAS)
def test_each_change_of_the_tables_of_a_file_is_found_and_named(original, tmp_path, file):
    assert not list(table_findings(original / file, SCHEMAS[file]))
    missed = []
    for statement, table in statements(SCHEMAS[file]):
        found = list(table_findings(changed(original, tmp_path, file, statement), SCHEMAS[file]))
        if not any(f" {table} " in each for each in found):
            missed.append((statement, found))
    assert not missed, "\n".join(map(str, missed))


@pytest.mark.parametrize("file", SCHEMAS)
def test_each_page_that_was_overwritten_is_found(original, tmp_path, file):
    content = (original / file).read_bytes()
    size = int.from_bytes(content[16:18])
    with contextlib.closing(sqlite3.connect(original / file)) as connection:
        roots = [page for (page,) in connection.execute("SELECT rootpage FROM sqlite_master WHERE rootpage > 1")]
    copy, missed = tmp_path / file, []
    for page in roots:
        start = (page - 1) * size
        copy.write_bytes(content[:start] + bytes(size) + content[start + size :])
        try:
            found = list(page_findings(copy))
        except sqlite3.DatabaseError as ex:
            found = [str(ex)]
        if not found:
            missed.append(page)
    assert roots
    assert not missed


@pytest.mark.parametrize(
    ("file", "statement", "text"),
    [
        ("registry.db", "DROP INDEX ix_log_command_id", "registry.db: the index of the table log by command_id is"),
        ("registry.db", "DROP TABLE marks", "registry.db: the table marks is missing"),
        ("registry.db", "DROP TABLE states", "registry.db: the table states is missing"),
        ("registry.db", "DROP TABLE states", "Kafka: damage keeps the check from going on. registry.db lacks a table"),
        ("coordination.db", "DROP TABLE resets", "coordination.db: the table resets is missing"),
        ("coordination.db", "PRAGMA user_version = 1", "coordination.db: its schema has the version 1, needed here: "),
        ("events.db", "DROP TRIGGER superseding", "events.db: the trigger superseding of the table keys is missing"),
        ("events.db", "PRAGMA user_version = 0", "events.db: its schema has the version 0, needed here: "),
    ],
)
def test_verify_names_what_is_not_as_it_is_made(original, tmp_path, file, statement, text):
    data = tmp_path / "data"
    shutil.copytree(original, data)
    changed(original, data, file, statement)
    assert any(each.startswith(text) for each in findings(data))


OF_ROWS = {
    "events.db": {"partitions": "id 1", "chunks": f"key {1 << 43}", "anchor": "one 1", "ids": "hash X'"},
    "coordination.db": {"partitions": "subscription 's', "},
}
ROWS = {
    "events.db": "INSERT INTO ids VALUES (x'01', 1);",
    "coordination.db": "INSERT INTO partitions (subscription, place, event_type, partition, offset) "
    "VALUES ('s', 0, 'a', '0', '');",
}


@pytest.mark.parametrize(("file", "table"), [(file, table) for file, tables in OF_ROWS.items() for table in tables])
def test_each_value_of_another_type_is_found_and_its_place_is_named(original, tmp_path, file, table):
    path = changed(original, tmp_path, file, ROWS[file])
    assert not list(type_findings(path, SCHEMAS[file]))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        columns = [(name, kind) for _, name, kind, *_ in connection.execute(f'PRAGMA table_info("{table}")')]
    missed = []
    for column, kind in columns:
        if kind == "INTEGER" and column in ("id", "key", "one"):
            continue  # SQLite refuses other types for what is its own number of the row.
        value = "'abc'" if kind != "TEXT" else "x'00ff'"
        statement = f'{ROWS[file]} UPDATE "{table}" SET "{column}" = {value}'
        found = list(type_findings(changed(original, tmp_path, file, statement), SCHEMAS[file]))
        named = f": the column {column} has {'blob' if kind == 'TEXT' else 'text'} instead of {kind.lower()}"
        if not any(each.startswith(f"the table {table}, row with ") and each.endswith(named) for each in found):
            missed.append((statement, found))
        if column not in OF_ROWS[file][table] and not any(OF_ROWS[file][table] in each for each in found):
            missed.append((statement, found))
    assert len(columns) > 1
    assert not missed, "\n".join(map(str, missed))


def test_verify_names_the_place_of_a_value_of_another_type(original, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(original, data)
    changed(original, data, "events.db", "UPDATE partitions SET chained_from = 'abc'")
    said = findings(data)
    named = "events.db: the table partitions, row with id 1: the column chained_from has text instead of integer"
    assert said[0] == named


@pytest.mark.parametrize(("version", "age"), [(1, "older"), (7, "older"), (99, "newer")])
def test_a_file_of_another_release_is_named_by_its_structure(original, tmp_path, version, age):
    """An older one once; a newer one also by what keeps the broker from starting."""
    data = tmp_path / "data"
    shutil.copytree(original, data)
    changed(original, data, "events.db", f"PRAGMA user_version = {version}")
    found, *others = findings(data)
    assert found.startswith(f"events.db: its schema has the version {version}, needed here: ")
    assert f"written by {'an older' if age == 'older' else 'a newer'} version of Rioni" in found
    assert len(others) == (age == "newer")


@pytest.mark.parametrize("file", ["registry.db", "coordination.db"])
def test_verify_finds_a_damaged_page_of_an_index(original, tmp_path, file):
    data = tmp_path / "data"
    shutil.copytree(original, data)
    name = "ix_log_command_id" if file == "registry.db" else "sessions_of_workers"
    content = bytearray((data / file).read_bytes())
    with contextlib.closing(sqlite3.connect(data / file)) as connection:
        ((page,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,))
    size = int.from_bytes(content[16:18])
    content[(page - 1) * size] = 0  # its kind
    (data / file).write_bytes(content)
    assert any(each.startswith(f"{file}: ") for each in findings(data))


@pytest.mark.parametrize(
    ("file", "statement", "text"),
    [
        ("coordination.db", "DROP TABLE resets", "coordination.db lacks the table resets"),
        ("coordination.db", "DROP TABLE partitions", "coordination.db lacks the table partitions"),
        ("coordination.db", "PRAGMA user_version = 0", "coordination.db has tables, but no version"),
        ("events.db", "DROP TABLE claims; DROP TABLE ids", "events.db lacks the tables ids, claims"),
        ("events.db", "PRAGMA user_version = 0", "events.db has tables, but no version"),
    ],
)
def test_a_broker_does_not_start_on_a_file_that_lacks_tables(original, tmp_path, file, statement, text):
    data = tmp_path / "data"
    shutil.copytree(original, data)
    changed(original, data, file, statement)
    with pytest.raises(DataMismatch) as raised, prepare_startup(Config(data=data)):
        pass
    assert text in str(raised.value)


@pytest.mark.parametrize(("partition", "offset"), [("0", "x"), ("0", ""), ("zero", "001-0001-000000000000000001")])
def test_a_committed_cursor_that_is_none_is_named(original, tmp_path, partition, offset):
    data = tmp_path / "data"
    shutil.copytree(original, data)
    columns = "subscription, place, event_type, partition, offset"
    insert = f"INSERT INTO partitions ({columns}) VALUES ('s', 0, 'a', '{partition}', '{offset}')"
    changed(original, data, "coordination.db", insert)
    (found,) = problems(Config(data=data))
    assert str(found) == f"subscription s: a, partition {partition}: {offset!r} is no offset"


@pytest.mark.parametrize("lacking", [[], ["anchored_first", "anchored_next"]])
def test_events_of_an_earlier_release_get_the_tables_of_this_one(original, tmp_path, lacking):
    """Both kinds of files exist; the ids of deleted partitions are not used again."""
    drops = "".join(f"ALTER TABLE partitions DROP COLUMN {each};" for each in lacking)
    sequence = "UPDATE sqlite_sequence SET seq = 99 WHERE name = 'partitions'; PRAGMA user_version = 7"
    path = changed(original, tmp_path, "events.db", f"{drops} {sequence}")
    EventsDatabase(path).close()
    assert not list(table_findings(path, EventsDatabase.schema, EventsDatabase.schema_version))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'partitions'").fetchall() == [(99,)]
        assert connection.execute("SELECT sum(next) FROM partitions").fetchone() == (10,)
