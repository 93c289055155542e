"""Kills a process at each of its changes of the file system, one after the other."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path


STEPS = ("pwrite", "ftruncate", "fsync", "rename", "replace", "unlink", "mkdir", "rmdir")
KILLED = 9


def killed_at_each_step(
    prepare: Callable[[int], Path], run: Callable[[Path], object], every: int = 1
) -> Iterator[Path]:
    """Run a function in a forked process that dies before its n-th change, for each n; yield what it leaves.

    Args:
        prepare: makes the folder of a run by its number.
        run: works on the folder.
        every: by how many steps the next run gets further.
    """
    number = 0
    while True:
        folder = prepare(number)
        if (pid := os.fork()) == 0:
            _run_and_die(run, folder, number)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in {0, KILLED}, "the function failed"
        yield folder
        if code == 0:
            assert number > every, "nothing was changed"
            return
        number += every


def _run_and_die(run: Callable[[Path], object], folder: Path, steps: int) -> None:
    left = steps

    def wrapped(change: Callable[..., object]) -> Callable[..., object]:
        def step(*args: object, **kwargs: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(KILLED)
            return change(*args, **kwargs)

        return step

    for name in STEPS:
        setattr(os, name, wrapped(getattr(os, name)))
    code = 1
    try:
        run(folder)
        code = 0
    finally:
        os._exit(code)
