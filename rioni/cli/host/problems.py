"""Output of `rioni verify`: what was found, for people or as JSON lines."""

import json
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rioni.cli.terminal.output import say


if TYPE_CHECKING:
    from rioni.operations.verification import Problem


def write_problems(problems: Iterable["Problem"], remarks: Iterable[str], *, as_json: bool) -> int:
    """Write each problem as it is found, then remarks and a summary; return how many problems there are.

    Remarks are left out where the registry, which they are about, can't be read.
    """
    from rioni.installation.stores import counted
    from rioni.operations.verification import as_object

    began_s = time.monotonic()
    counts: Counter[str] = Counter()
    first: int | None = None
    for problem in problems:
        counts[problem.store] += 1
        if problem.store == "log" and problem.position is not None:
            first = problem.position if first is None else min(first, problem.position)
        say(json.dumps(as_object(problem)) if as_json else str(problem))
    total = counts.total()
    said = [] if counts["registry.db"] else list(remarks)
    if as_json:
        summary = {"findings": total, "stores": counts, "first_log_position": first, "remarks": said}
        say(json.dumps(summary | {"seconds": round(time.monotonic() - began_s, 3)}))
        return total
    for remark in said:
        say(f"Remark: {remark}.")
    if first is not None:
        say(f"The log is damaged from position {first} on: its hash chain proves the entries before it only.")
    say(counted(total, "finding") if total else "Nothing is damaged or missing.")
    return total
