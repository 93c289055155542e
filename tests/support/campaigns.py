"""How long campaigns are: tests that try something over and over, for as long as there is time."""

import os
from typing import TypeVar


Number = TypeVar("Number", int, float)

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


def length(usual: Number, nightly: Number) -> Number:
    """How often or how long a test marked `nightly` tries: a little in each run, much at night."""
    return nightly if NIGHTLY else usual
