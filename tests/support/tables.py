"""Tables of the contract as tests: each case is named after its row."""

from typing import Any

import pytest


def rows(*cases: tuple[Any, ...]) -> list[Any]:
    """The cases of a table; each is the name of its row and then its values."""
    return [pytest.param(*case, id=row) for row, *case in cases]
