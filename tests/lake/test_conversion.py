"""Archives of earlier releases, in Parquet with manifests of their own, become Delta tables of the same files."""

import tarfile
from datetime import date
from pathlib import Path

import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from rioni.client.ranges import Place
from rioni.domain.errors import Conflict, Invalid, Unavailable
from rioni.lake import conversion
from rioni.lake.archive import open_lake
from rioni.lake.conversion import convert
from rioni.lake.location import parse_location
from rioni.lake.table import EVENTS, QUARANTINE, TableProgress


FROZEN = Path(__file__).parents[1] / "frozen"
PROGRESS = TableProgress(1_767_225_600_000, {"0": Place(2, 0), "1": Place(1, 2)})
ROWS = [
    {"order": "a", "amount": 1, "address": {"city": "Berlin", "zip": None}, "total": "1.5", "note": None},
    {"order": "b", "amount": 2, "address": None, "total": '"x"', "note": None},
    {"order": "c", "amount": 3, "address": {"city": "Bonn", "zip": "53111"}, "total": None, "note": "later"},
]


class Died(BaseException):
    """The process ends here."""


@pytest.fixture
def archive(tmp_path) -> Path:
    """An archive with two commits, a row in quarantine, and a file that a killed process has left."""
    with tarfile.open(FROZEN / "archive-0.1.1.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path / "archive"


def opened(folder: Path, kind: str = EVENTS):
    return open_lake("delta", parse_location(str(folder)), None).open(kind, "order.created")


def converted(folder: Path):
    return [tuple(each) for each in convert(parse_location(str(folder)))]


def files(folder: Path):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check(folder: Path) -> None:
    """Check that the tables have all rows, and go on at their places."""
    rows = sorted(DeltaTable(folder / "order.created").to_pyarrow_table().to_pylist(), key=lambda row: row["order"])
    assert [{name: row[name] for name in ROWS[0]} for row in rows] == ROWS
    assert [row["event_day"] for row in rows] == [date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 2)]
    assert opened(folder).progress == opened(folder, QUARANTINE).progress == PROGRESS
    assert opened(folder, QUARANTINE).keys_behind({}) == {("1", Place(1, 2).offset)}
    assert not [*folder.rglob("_manifest")]


def test_all_tables_are_converted_and_have_the_same_rows_and_places(archive):
    assert converted(archive) == [("events", "order.created", 3, 3), ("quarantine", "order.created", 1, 1)]
    check(archive)
    with pytest.raises(Invalid, match="no archive in Parquet"):
        converted(archive)


def test_the_archive_goes_on_in_a_converted_table(archive):
    converted(archive)
    table = opened(archive)
    rows = DeltaTable(archive / "order.created").to_pyarrow_table().slice(0, 1)
    table.append(rows.cast(table.schema), TableProgress(PROGRESS.created_at_ms, {"0": Place(2, 1), "1": Place(1, 2)}))
    assert DeltaTable(archive / "order.created").to_pyarrow_table().num_rows == 4
    assert opened(archive).progress.places["0"] == Place(2, 1)


@pytest.mark.parametrize("steps", range(4))
def test_a_conversion_that_died_is_completed_by_the_next_one(archive, monkeypatch, steps):
    """It dies before it makes a table, or before it removes a manifest."""
    left = [None] * steps

    def dying(change):
        def step(*args, **options):
            if not left:
                raise Died
            left.pop()
            return change(*args, **options)

        return step

    with monkeypatch.context() as patched:
        patched.setattr(conversion.DeltaLake, "make", dying(conversion.DeltaLake.make))
        patched.setattr(obstore, "delete", dying(obstore.delete))
        with pytest.raises(Died):
            converted(archive)
    converted(archive)
    check(archive)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("_manifest/000000000001.json", "{"),
        ("_manifest/000000000001.json", '{"event_type": "other", "offsets": {}, "columns": "", "files": []}'),
        ("event_day=2026-01-01/*.parquet", "PAR1"),
        ("event_day=2026-01-01/*.parquet", None),
    ],
    ids=["manifest", "another table's manifest", "damaged file", "missing file"],
)
def test_a_damaged_archive_is_refused_and_left_as_it_is(archive, path, text):
    (damaged,) = (archive / "order.created").glob(path)
    damaged.unlink() if text is None else damaged.write_text(text)
    before = files(archive)
    with pytest.raises(Unavailable):
        converted(archive)
    assert files(archive) == before


def test_a_delta_table_that_has_gone_on_is_not_replaced(archive):
    (archive / "order.created/_manifest").rename(archive / "moved")
    columns = pa.schema([("order", pa.string()), ("event_day", pa.date32())])
    DeltaTable.create(str(archive / "order.created"), columns, partition_by=["event_day"])
    (archive / "moved").rename(archive / "order.created/_manifest")
    with pytest.raises(Conflict, match="has gone on"):
        converted(archive)


def test_an_archive_of_an_earlier_release_names_the_command_that_converts_it(archive):
    with pytest.raises(Conflict, match=f"rioni convert-archive {archive}"):
        opened(archive)
    with pytest.raises(Invalid, match="rioni convert-archive /"):
        open_lake("parquet", parse_location("lake"), None)
