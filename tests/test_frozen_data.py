"""Data of earlier releases, read by today's tools: data, backups, archives, exports, states of copies.

Broker and archives of `0.1.1-before-rest`, from before the column `_rest`, hold ten events each. The one of 0.1.0 has
130 events in three partitions. Brokers may have deleted their events meanwhile: tests read the events after them.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fastavro
import pytest

from rioni.client import Client
from rioni.operations import verify_export
from tests.support.campaigns import NIGHTLY
from tests.support.commands import run_command
from tests.support.lake import FORMATS, ArchiveUnderTest
from tests.support.server import running_server
from tests.support.waiting import WAIT_S


FOLDER = Path(__file__).parent / "frozen"
PLACE = "/frozen"
"""The folder in which the frozen Iceberg tables say that their files are."""


def unpack(release: str, folder: Path) -> Path:
    """Put the data of a release into a folder."""
    with tarfile.open(FOLDER / f"data-{release}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    lake = folder / "lake" / "iceberg"
    if lake.exists():
        move_iceberg(lake, PLACE, str(folder))
    return folder


def move_iceberg(lake: Path, old: str, new: str) -> None:
    """Let Iceberg tables say that their files are below another place; their metadata has whole paths."""
    for each in lake.glob("**/*.metadata.json"):
        each.write_text(each.read_text().replace(old, new))
    for each in lake.glob("**/*.avro"):
        with each.open("rb") as file:
            reader = fastavro.reader(file)
            records = [_replaced(record, old, new) for record in reader]
        schema, codec = reader.writer_schema, reader.codec
        metadata = {name: value for name, value in reader.metadata.items() if not name.startswith("avro.")}
        with each.open("wb") as file:
            fastavro.writer(file, schema, records, codec=codec, metadata=metadata)
    with sqlite3.connect(lake / "catalog.db") as connection:
        for column in ("metadata_location", "previous_metadata_location"):
            connection.execute(f"UPDATE iceberg_tables SET {column} = replace({column}, ?, ?)", (old, new))
    connection.close()


def _replaced(value: Any, old: str, new: str) -> Any:
    match value:
        case str():
            return value.replace(old, new)
        case dict():
            return {name: _replaced(each, old, new) for name, each in value.items()}
        case list():
            return [_replaced(each, old, new) for each in value]
    return value


TABLES = ("parquet", "delta")
EVENT_TYPE, COPIED = "shop.order", "shop.copied"
OPEN = ['"5"', "5", '{"a":1}', None, '"x"'] * 2
TEXTS = ["5", "5", '{"a":1}', None, "x"] * 2
"""The column `any`, as it is now, and as it was."""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """A broker whose data are of before, upgraded, with three further events."""
    folder = unpack("0.1.1-before-rest", tmp_path_factory.mktemp("earlier"))
    with running_server(folder / "data") as server, Client(server.url) as client:
        client.publish(EVENT_TYPE, [{"id": f"B{each}", "n": 100 + each, "any": "5", "extra": 1} for each in range(3)])
        yield SimpleNamespace(folder=folder, url=server.url, client=client)


@pytest.fixture
def rioni(monkeypatch, capsys, tmp_path):
    for variable in [name for name in os.environ if name.startswith("RIONI_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("RIONI_CONTEXTS", str(tmp_path / "contexts.toml"))

    def run(*arguments):
        return run_command(monkeypatch, capsys, *map(str, arguments))

    return run


def stored(client, name):
    """How many events were stored, those that are deleted meanwhile included."""
    return sum(count_upto(each.newest_available_offset) for each in client.partitions.list(name))


def count_upto(offset):
    return 1 + int(offset.split("-", 2)[2])


def by_number(table):
    return sorted(table.to_pylist(), key=lambda row: row["n"])


def verified(script, folder):
    done = subprocess.run([sys.executable, script, folder], capture_output=True, text=True, timeout=WAIT_S, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("format_", [*FORMATS, "parquet"])
def test_an_archive_goes_on_behind_its_rows_with_columns_of_their_own_for_what_is_kept_otherwise(
    earlier, rioni, format_
):
    folder = str(earlier.folder / "lake" / format_)
    if format_ == "parquet":
        assert rioni("convert-archive", folder)[0] == 0
        format_ = "delta"
    lake = ArchiveUnderTest(url=earlier.url, to=folder, format_=format_)
    before = lake.table(EVENT_TYPE)
    done = lake.archive(EVENT_TYPE)[EVENT_TYPE]
    assert (done.archived, done.lost) == (3, 0)
    rows = by_number(lake.table(EVENT_TYPE))
    assert [row["id"] for row in rows] == [f"A{each}" for each in range(10)] + ["B0", "B1", "B2"]
    assert [row["any"] for row in rows] == TEXTS + [None] * 3
    assert [row["any__2"] for row in rows] == [None] * 10 + ['"5"'] * 3
    assert [row["_rest"] for row in rows] == [None] * 10 + ['{"extra":1}'] * 3
    assert by_number(before) == [{name: row[name] for name in before.column_names} for row in rows[:10]]
    assert lake.archive(EVENT_TYPE)[EVENT_TYPE].archived == 0


def test_a_copy_goes_on_at_its_state(earlier, rioni):
    for copied in (3, 0):
        code, out, _ = rioni("copy", EVENT_TYPE, COPIED, "--state", earlier.folder / "copy.state", "--url", earlier.url)
        done = f"{copied} events copied to shop.copied; by all runs: 13 copied; the target has grown by 13.\n"
        assert (code, out) == (0, done)
        assert stored(earlier.client, COPIED) == stored(earlier.client, EVENT_TYPE) == 13


def test_the_log_extends_the_checkpoint_and_nothing_is_damaged(earlier, rioni):
    data = earlier.folder / "data"
    code, out, _ = rioni("verify", "--data", data, "--checkpoint", earlier.folder / "checkpoint")
    assert (code, out.splitlines()[-1]) == (0, "Nothing is damaged or missing."), out


@pytest.mark.parametrize("name", ["plain", "selected"])
def test_an_export_is_verified(earlier, name):
    assert verified(verify_export.__file__, earlier.folder / "export" / name) == (0, "")


@pytest.mark.parametrize("name", TABLES)
def test_an_audit_table_is_converted_and_verified(earlier, rioni, tmp_path, name):
    table = shutil.copytree(earlier.folder / "export" / name, tmp_path / name)
    code, out, _ = rioni("convert-archive", table)
    assert (code, out) == (0, f"{name}, audit table: 1 files, 8 rows\n")
    assert verified(verify_export.__file__, table) == (0, "")


def test_an_audit_table_of_json_lines_is_exported_anew(earlier, rioni):
    code, _, err = rioni("convert-archive", earlier.folder / "export" / "jsonl")
    assert code == 2
    assert "rioni audit export --format delta --to FOLDER" in err


@pytest.mark.parametrize(
    # Starting Spark takes seconds.
    ("name", "command"),
    [pytest.param(name, ["--format", "delta"], marks=pytest.mark.spark) for name in TABLES if NIGHTLY] + [("new", [])],
)
def test_an_export_goes_on(earlier, rioni, name, command):
    folder = earlier.folder / "export" / name
    if command:
        assert rioni("convert-archive", folder)[0] == 0
    assert rioni("audit", "export", "--to", folder, "--data", earlier.folder / "data", *command)[0] == 0
    assert verified(folder / "verify_export.py", folder) == (0, "")


def test_a_backup_is_restored_and_served(earlier, rioni, tmp_path):
    data = tmp_path / "data"
    assert rioni("restore", "--from", earlier.folder / "backup", "--data", data)[0] == 0
    with running_server(data) as server, Client(server.url) as client:
        (subscription,) = client.subscriptions.list()
        assert subscription.consumer_group == "g"
        committed = client.subscriptions.cursors(subscription.id)
        assert sum(count_upto(each.offset) for each in committed) == 4
    assert rioni("verify", "--data", data)[0] == 0


def test_tools_that_do_not_upgrade_say_so_of_the_data_of_0_1_0(rioni, tmp_path):
    data = unpack("0.1.0", tmp_path) / "data"
    for command in (["verify"], ["audit"], ["audit", "checkpoint"], ["backup", "--to", tmp_path / "backup"]):
        code, _, err = rioni(*command, "--data", data)
        assert code == 2
        assert "was written by an older version of Rioni" in err
        assert "let `rioni serve` of this one bring it up to date" in err


def test_the_data_of_0_1_0_go_on(rioni, tmp_path):
    data = unpack("0.1.0", tmp_path) / "data"
    with running_server(data) as server, Client(server.url) as client:
        assert [each.name for each in client.event_types.list()] == [EVENT_TYPE]
        client.publish(EVENT_TYPE, [{"id": "A1", "n": 130}])
        assert stored(client, EVENT_TYPE) == 131
    code, out, _ = rioni("verify", "--data", data)
    assert (code, out.splitlines()[-1]) == (0, "Nothing is damaged or missing."), out
    assert len(rioni("audit", "--data", data, "--format", "jsonl")[1].splitlines()) == 10
