"""The one way to wait for what other processes, threads and greenlets bring about.

There is one deadline, which only a failure uses up: tests do not state how fast a machine is. What ends a wait is the
condition alone: neither a number of attempts or batches, nor the end of a stream, nor a shorter time.
"""

import inspect
import textwrap
import time
from collections.abc import Callable
from functools import partial
from typing import NoReturn, TypeVar


Found = TypeVar("Found")

WAIT_S = 120
"""How long tests wait for anything, in seconds; less than the timeout of a test, so that the wait says what it was."""
PAUSE_S = 0.01
SHOWN_MAX = 2_000
"""Characters of what was last seen."""


class Deadline:
    """Ends one wait, also one that has several steps."""

    def __init__(self, awaited: str) -> None:
        """Begin to wait for what is described."""
        self._awaited = awaited
        self.begin()

    def begin(self) -> None:
        """Begin again, after something was seen to go on."""
        self._end_s = time.monotonic() + WAIT_S

    def check(self, seen: Callable[[], object]) -> None:
        """Fail if it is over; `seen` returns what was seen last."""
        if time.monotonic() > self._end_s:
            self.fail(f"it did not come within {WAIT_S} s", seen())

    def fail(self, reason: str, seen: object) -> NoReturn:
        """Fail, as what was awaited can't come any more; `seen` is what was seen last."""
        text = str(seen)
        raise AssertionError(f"{reason}: {self._awaited}\nlast seen: {text[-SHOWN_MAX:]}")


def wait_until(condition: Callable[[], Found], seen: Callable[[], object] | None = None) -> Found:
    """Poll until the result is true, and return it.

    Args:
        condition: what is awaited; its source describes it.
        seen: returns what a failure shows; by default the last result, and the variables that the condition uses.

    Raises:
        AssertionError: it was not true within `WAIT_S`; the text says what was awaited, and what was last seen.
    """
    deadline = None
    while not (found := condition()):
        deadline = deadline or Deadline(_source(condition))
        deadline.check(seen or partial(_result_and_variables, condition, found))
        time.sleep(PAUSE_S)
    return found


def _result_and_variables(condition: Callable[[], object], result: object) -> str:
    variables = inspect.getclosurevars(condition).nonlocals if inspect.isfunction(condition) else {}
    return "\n".join([repr(result), *(f"{name} = {value!r}" for name, value in variables.items())])


def _source(condition: Callable[[], object]) -> str:
    try:
        return textwrap.dedent(inspect.getsource(condition)).strip()
    except (OSError, TypeError):
        return repr(condition)
