"""Proposes the nearest of the known names where one is not known: the rule of all errors that ask "did you mean"."""

import difflib
from collections.abc import Iterable
from itertools import islice


NAMES_MAX = 10_000
"""Names among which the nearest one is looked for."""
LIKENESS_MIN = 0.6
"""Of a name that is proposed, from 0 to 1."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like another one, upper and lower case aside; None if none is like it."""
    names = {each.casefold(): each for each in islice(known, NAMES_MAX)}
    found = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=LIKENESS_MIN)
    return names[found[0]] if found else None


def proposal(name: str, known: Iterable[str], otherwise: str = ".") -> str:
    """The end of a sentence about a name that is not known: the question for the nearest one, or `otherwise`."""
    found = nearest(name, known)
    return otherwise if found is None else f"; did you mean {found}?"
