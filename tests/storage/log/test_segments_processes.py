import os
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from rioni.domain.errors import Unavailable
from rioni.sql.log_tables import HEAD
from rioni.storage.log.segments import RESULTS_MAX, map_ranges
from rioni.storage.sql.engines import reading


ROOT = Path(__file__).parents[3]
RANGES = [*pairwise(range(2 * RESULTS_MAX))]


def read_with_process(engine: Engine, after: int, upto: int) -> tuple[int, int, int, int]:
    with reading(engine) as connection:
        return after, upto, connection.scalar(select(HEAD.c.position)), os.getpid()


def fail(_engine: Engine, after: int, _upto: int) -> None:
    if after == RESULTS_MAX:
        raise Unavailable("The range can't be read.")


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other processes import this module."""
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.parametrize(("processes", "count"), [(1, 4), (2, 2), (2, len(RANGES))])
def test_results_come_in_the_order_of_the_ranges(sqlite_engine: Engine, processes: int, count: int):
    found = [*map_ranges(read_with_process, sqlite_engine, RANGES[:count], processes)]
    assert [each[:3] for each in found] == [(*each, 0) for each in RANGES[:count]]
    used = {process for *_, process in found}
    assert os.getpid() in used
    assert len(used) <= processes


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_of_any_process_ends_the_iteration(sqlite_engine: Engine, processes: int):
    with pytest.raises(Unavailable, match="The range"):
        list(map_ranges(fail, sqlite_engine, RANGES, processes))
