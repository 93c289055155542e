"""Collects per-item errors so that the remaining items are processed, and raises them at the end."""

import contextlib
from collections.abc import Iterator

from rioni.domain.errors import RioniError, Unavailable


class ErrorCollector:
    """What has failed so far."""

    def __init__(self) -> None:
        self._reasons: list[str] = []

    @contextlib.contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Collect an expected error of the block under a name, and continue after it."""
        try:
            yield
        except RioniError as ex:
            self._reasons.append(f"{what}: {ex}")

    def report(self) -> None:
        """Tell of everything that has failed.

        Raises:
            Unavailable: something has.
        """
        if self._reasons:
            raise Unavailable("; ".join(self._reasons))
