"""The share of mutants that a test has found, of those that `mutmut run` has tried; fails below the floor.

Run as `python -m dev.mutation_score` after `mutmut export-cicd-stats`, in the same folder.
"""

import json
import sys
from pathlib import Path


STATISTICS = Path("mutants/mutmut-cicd-stats.json")
FLOOR = 0.85


def score(counts: dict[str, int]) -> float:
    """The share of found mutants: those without any test count as not found, endless loops as found."""
    found = counts["killed"] + counts["timeout"] + counts["segfault"] + counts["suspicious"]
    return found / (found + counts["survived"] + counts["no_tests"])


def main() -> None:
    """Print the score, and exit with 1 below the floor."""
    counts = json.loads(STATISTICS.read_text())
    reached = score(counts)
    sys.stdout.write(f"{reached:.1%} of {counts['total']} mutants were found; the floor is {FLOOR:.0%}\n")
    sys.exit(reached < FLOOR)


if __name__ == "__main__":
    main()
