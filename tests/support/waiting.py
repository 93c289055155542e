"""Waits for conditions that other processes or threads bring about."""

import time
from collections.abc import Callable
from typing import TypeVar


Found = TypeVar("Found")

WAIT_S = 120


def wait_until(condition: Callable[[], Found]) -> Found:
    """Poll until the result is true, and return it; fail after two minutes."""
    deadline_s = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"it did not happen in time: {found}"
        time.sleep(0.01)
    return found
