"""Archives in forked processes, each of which dies: before one of its steps, a file or a commit, or at some time.

Reads a line of JSON for each process and answers with its exit code: 0, or 9 if it has died. The process that forks
has imported everything, and has no threads.
"""

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tests.support.lake import ArchiveUnderTest


KILLED = 9
STEPS = {
    "delta": (("deltalake", "DeltaTable.create"), ("rioni.lake.delta_table", "write_deltalake")),
    "iceberg": (
        ("pyiceberg.table", "Transaction.commit_transaction"),
        ("pyiceberg.table.update.snapshot", "_SnapshotProducer._commit"),
    ),
}
"""By format what changes something: a module, and what it has or calls."""


def archive_and_die(
    to: dict[str, str], name: str, *, steps: int = sys.maxsize, seconds: float = 0, limits: dict[str, int] | None = None
) -> None:
    """Archive an event type; the process ends before that if there are more steps, or after some seconds.

    Args:
        to: of `ArchiveUnderTest`.
        name: of the event type.
        steps: after how many steps to die.
        seconds: after which time to die by SIGKILL; 0 for never.
        limits: when events are committed.
    """
    left = steps
    if seconds:
        # By default the timer ends the process like SIGKILL: no code of it runs any more.
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os._exit(KILLED)

    def dying(change: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            count()
            return change(*args, **kwargs)

        return step

    for module, path in STEPS[to["format_"]]:
        *owners, attribute = path.split(".")
        owner: Any = importlib.import_module(module)
        for each in owners:
            owner = getattr(owner, each)
        setattr(owner, attribute, dying(getattr(owner, attribute)))
    ArchiveUnderTest(**to).archive(name, **(limits or {}))


def main() -> None:
    for module in ("delta_table", "iceberg_table"):
        importlib.import_module(f"rioni.lake.{module}")
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            code = 1
            try:
                archive_and_die(**json.loads(line))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        sys.stdout.write(f"{KILLED if code == -signal.SIGALRM else code}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
