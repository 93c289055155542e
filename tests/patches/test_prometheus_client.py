"""Files of values have disk blocks for all that is written; prometheus_client still makes them larger in one method."""

import errno
import json
import os

from prometheus_client import mmap_dict

from rioni.patches import prometheus_client as patch
from rioni.patches.prometheus_client import AllocatedDict


def holes(path):
    """The bytes of a file for which the disk has no blocks."""
    return path.stat().st_size - 512 * path.stat().st_blocks


def keys(count):
    return [json.dumps(["x", "x", {"label": str(number)}, "x" * 1_000]) for number in range(count)]


def test_files_of_values_have_allocated_blocks_for_all_their_data(tmp_path):
    values = AllocatedDict(str(tmp_path / "counter_0.db"))
    for key in keys(200):
        values.write_value(key, 1.0, 0.0)
        assert holes(tmp_path / "counter_0.db") <= 0
    assert len(list(values.read_all_values())) == 200
    values.close()


def test_the_sizes_are_those_of_the_library(tmp_path):
    assert patch.INITIAL_BYTES == mmap_dict._INITIAL_MMAP_SIZE
    values = AllocatedDict(str(tmp_path / "counter_0.db"))
    before = values._used
    values.write_value("x" * 100, 1.0, 0.0)
    assert 100 < values._used - before <= 100 + patch._OF_ENTRY
    values.close()


def test_on_a_full_disk_a_process_counts_in_its_own_memory(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = AllocatedDict(str(tmp_path / "counter_0.db"))
    before.write_value("before", 1.0, 0.0)
    monkeypatch.setattr(os, "posix_fallocate", full)
    begun = AllocatedDict(str(tmp_path / "counter_1.db"))
    for values in (before, begun):
        for key in keys(200):
            values.write_value(key, 2.0, 0.0)
        assert {values.read_value(key)[0] for key in keys(200)} == {2.0}
    assert before.read_value("before")[0] == 1.0
    # The others read the values shared before, and no file that is empty.
    assert [path.name for path in tmp_path.iterdir()] == ["counter_0.db"]
    assert "before" in [key for key, *_ in AllocatedDict.read_all_values_from_file(str(tmp_path / "counter_0.db"))]
    for values in (before, begun):
        values.close()
