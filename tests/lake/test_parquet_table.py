"""Files of a Parquet table that no manifest names are removed, and can't be named any more."""

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from rioni.client.ranges import Place
from rioni.domain.errors import Unavailable
from rioni.lake.location import parse_location
from rioni.lake.parquet_table import ParquetLake
from rioni.lake.table import DAY, EVENTS, Progress, WriterConflict


ROWS = pa.table({"a": [1, 2], DAY: pa.array([date(2026, 1, 2), date(2026, 1, 3)], pa.date32())})


def progress(position: int) -> Progress:
    return Progress(7, {"0": Place(1, position)})


def opened(folder: Path):
    return ParquetLake(parse_location(str(folder))).open(EVENTS, "order.created")


def orphan(folder: Path, number: int) -> Path:
    """Make the file that a process leaves behind if it dies before its commit."""
    path = folder / f"order.created/{DAY}=2026-01-02/{number:012d}-{'0' * 32}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"PAR1")
    return path


@pytest.mark.parametrize("commits", [0, 1, 3])
def test_files_of_a_process_that_died_are_removed_and_it_can_not_commit_any_more(tmp_path, commits):
    slow = opened(tmp_path)
    for number in range(commits):
        slow.append(ROWS, progress(number))
    left, later = orphan(tmp_path, commits), orphan(tmp_path, commits + 5)
    after = opened(tmp_path)
    assert not left.exists()
    assert later.exists(), "that of a process that has begun later"
    assert after.progress == (progress(commits - 1) if commits else Progress(None, {}))
    with pytest.raises(WriterConflict):
        slow.append(ROWS, progress(commits))
    after.append(ROWS, progress(commits))
    files = {str(path.relative_to(tmp_path / "order.created")) for path in tmp_path.rglob("*.parquet")}
    assert len(files) == 2 * commits + 2 + 1, "what the slow one wrote is gone as well"
    assert opened(tmp_path).progress == progress(commits)


def test_manifests_are_few_and_the_newest_one_counts(tmp_path):
    table = opened(tmp_path)
    for number in range(25):
        table.append(ROWS.slice(0, 0), progress(number))
    assert len(list((tmp_path / "order.created/_manifest").iterdir())) == 10
    assert opened(tmp_path).progress == progress(24)
    assert opened(tmp_path).schema == ROWS.schema


def test_a_manifest_that_can_not_be_read_is_an_error(tmp_path):
    opened(tmp_path).append(ROWS, progress(0))
    (tmp_path / "order.created/_manifest/000000000000.json").write_text("{")
    with pytest.raises(Unavailable, match="can't be used"):
        opened(tmp_path)
