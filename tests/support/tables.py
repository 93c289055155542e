"""Tables of the reference as parametrized tests: each case is named after its row."""

from typing import Any

import pytest


def rows(*cases: tuple[Any, ...]) -> list[Any]:
    """The cases of a table: each entry is the name of its row, followed by its values."""
    return [pytest.param(*case, id=row) for row, *case in cases]
