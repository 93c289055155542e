"""Maps ranges of the internal log by several processes, which read the database themselves."""

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache
from typing import TypeVar

from sqlalchemy import Engine, make_url

from rioni.storage.sql.read_only import engine_for_reading


WAITING_PER_PROCESS = 3
RESULTS_MAX = 64
"""Ranges begun and not yielded yet: a process that takes long must not let the results of others pile up."""

Result = TypeVar("Result")
Work = Callable[[Engine, int, int], Result]
"""Maps the entries after one position up to another. A function, or a `partial`: other processes import it."""


def map_ranges(
    work: Work[Result], engine: Engine, ranges: Sequence[tuple[int, int]], processes: int
) -> Iterator[Result]:
    """Yield what a function returns for each range, in their order; blocks on the database.

    Args:
        work: reads the database.
        engine: of the database. Other processes open it for reading.
        ranges: positions as `work` takes them.
        processes: how many to use at most, this one included, which works as well: others take a second to start.

    Raises:
        Unavailable: the database can't be read.
    """
    if processes == 1 or len(ranges) <= processes:
        yield from (work(engine, *each) for each in ranges)
        return
    address = engine.url.render_as_string(hide_password=False)
    # NOTE: forking would copy the connections of this process.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes - 1, context) as pool:
        begun: deque[Future[Result]] = deque()
        try:
            for after, upto in ranges:
                while begun and (begun[0].done() or len(begun) == RESULTS_MAX):
                    yield begun.popleft().result()
                if sum(not each.done() for each in begun) < WAITING_PER_PROCESS * (processes - 1):
                    begun.append(pool.submit(_work_in_worker, work, address, after, upto))
                else:
                    begun.append(Future())
                    begun[-1].set_result(work(engine, after, upto))
            while begun:
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()


def _work_in_worker(work: Work[Result], address: str, after: int, upto: int) -> Result:
    return work(_engine(address), after, upto)


@cache
def _engine(address: str) -> Engine:
    return engine_for_reading(make_url(address))
