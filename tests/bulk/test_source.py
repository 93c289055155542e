import pyarrow as pa
import pytest

from rioni.domain.hash_chain import LogHead
from rioni.projections.bulk import source
from rioni.projections.bulk.loading import database as database_of
from rioni.projections.bulk.source import check_count, map_task, read_head
from rioni.projections.log_rows import CorruptLog
from tests.bulk.test_rebuild import history


ENTRIES = 300


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_tasks_read_each_entry_once_and_streams_in_the_order_of_versions(count, engine, write, monkeypatch):
    monkeypatch.setattr(source, "ENTRIES_PER_READ", 3)
    write(history(ENTRIES))
    database = database_of(engine)
    read = []

    def note(number, log):
        read.append([(stream, version) for _, stream, version, *_ in log])
        yield from ()

    numbers = pa.record_batch({"id": range(count)})
    assert not list(map_task([numbers], count=count, database=database, head=read_head(database), function=note))
    entries = [entry for task in read for entry in task]
    assert (len(read), len(entries), len(set(entries))) == (count, ENTRIES, ENTRIES)
    assert entries == sorted(entries)


def test_entries_behind_the_head_are_not_read(engine, write):
    write(history(ENTRIES))
    database = database_of(engine)
    assert {row[0] for row in source.read_streams(database, "", "", LogHead(200, b""))} == set(range(1, 201))


def test_entries_that_no_task_has_read_are_a_finding():
    with pytest.raises(CorruptLog, match="199 of 200 entries"):
        check_count(199, LogHead(200, b""))
