"""How long campaigns are: tests that repeat random trials for as long as there is time."""

import os
from typing import TypeVar


Number = TypeVar("Number", int, float)

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


def length(usual: Number, nightly: Number) -> Number:
    """How often or how long a test marked `nightly` repeats its trials: few in each run, many at night."""
    return nightly if NIGHTLY else usual
