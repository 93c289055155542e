"""Kills a process at each of its changes of the file system, or of a database, one after the other."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sqlalchemy.engine.default import DefaultDialect


Steps = Sequence[tuple[object, str]]
"""Functions, each with what has it as an attribute."""

FILE_STEPS: Steps = [
    (os, name) for name in ("pwrite", "ftruncate", "fsync", "rename", "replace", "unlink", "mkdir", "rmdir")
]
SQL_STEPS: Steps = [(DefaultDialect, name) for name in ("do_execute", "do_executemany", "do_commit")]
"""The methods that SQLAlchemy calls for each statement, and to commit."""
KILLED = 9


def killed_at_each_step(
    prepare: Callable[[int], Path], run: Callable[[Path], object], every: int = 1, steps: Steps = FILE_STEPS
) -> Iterator[Path]:
    """Run a function in a forked process that dies before its n-th change, for each n; yield what it leaves.

    Args:
        prepare: makes the folder of a run by its number.
        run: works on the folder.
        every: by how many steps the next run gets further.
        steps: what counts as a change.
    """
    number = 0
    while True:
        folder = prepare(number)
        if (pid := os.fork()) == 0:
            _run_and_die(run, folder, number, steps)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in {0, KILLED}, "the function failed"
        yield folder
        if code == 0:
            assert number > every, "nothing was changed"
            return
        number += every


def _run_and_die(run: Callable[[Path], object], folder: Path, number: int, steps: Steps) -> None:
    left = number

    def wrapped(change: Callable[..., object]) -> Callable[..., object]:
        def step(*args: object, **kwargs: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(KILLED)
            return change(*args, **kwargs)

        return step

    for owner, name in steps:
        setattr(owner, name, wrapped(getattr(owner, name)))
    code = 1
    try:
        run(folder)
        code = 0
    finally:
        os._exit(code)
