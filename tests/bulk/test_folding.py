import sqlite3

from rioni.projections.bulk.executors import FileSink
from rioni.projections.bulk.loading import targets
from rioni.projections.generations.generation import Generation
from rioni.sql.engines import open_engine


def test_the_output_of_a_task_is_divided_into_batches_by_number_and_by_size(tmp_path):
    (target,) = [each for each in targets(open_engine("sqlite://"), Generation("new")) if each.name == "event_types"]
    sink = FileSink(str(tmp_path), 7)

    sink.write(target, [(f"large-{number}", "shop", "x" * 1_000_000) for number in range(9)], 9_000_000)
    sink.write(target, [(f"small-{number}", "shop", "{}") for number in range(10_001)], 200_000)
    sink.write(target, [("huge", "shop", "x" * 9_000_000)], 9_000_000)
    assert not list(tmp_path.glob("*.db"))
    sink.close({"event_types": 10_011})

    (path,) = tmp_path.glob("*.db")
    assert path.stem == "000007"
    with sqlite3.connect(path) as connection:
        batches = connection.execute("SELECT first, last FROM batches").fetchall()
        assert connection.execute("SELECT count(*) FROM event_types").fetchone() == (10_011,)
    connection.close()
    assert batches == [(1, 4), (5, 8), (9, 9), (10, 10_009), (10_010, 10_010), (10_011, 10_011)]
