"""How long `rioni serve` takes from its start to its first answer of `/health`: `python -m benchmarks.start`.

Each start has a new data directory. Python's byte code is compiled before, as pip does on installing.
"""

import argparse
import compileall
import os
import statistics

import rioni
from benchmarks.over_http import server


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    compileall.compile_dir(rioni.__path__[0], quiet=1)
    found = []
    for _ in range(options.rounds):
        with server(options.workers) as (_, seconds):
            found.append(seconds)
    print(f"start to first answer of /health: {statistics.median(found):.2f} s ({min(found):.2f} to {max(found):.2f})")


if __name__ == "__main__":
    main()
