"""Health of a dependency of the broker."""

from typing import Protocol, runtime_checkable

import msgspec


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a health check."""

    reason: str = ""
    """Why it has failed; empty if it works."""
    detail: str = ""
    """Further details."""
    warnings: tuple[str, ...] = ()
    """Warnings: it works, but something should be corrected."""

    @property
    def status(self) -> str:
        """One word: ok, warning or failed."""
        return "failed" if self.reason else "warning" if self.warnings else "ok"


@runtime_checkable
class Examined(Protocol):
    """An adapter of what can fail: external servers, or a disk."""

    def health(self) -> Health:
        """Query the servers, or try a durable write; blocks for some seconds at most.

        Raises:
            Unavailable: they do not answer, or it could not be written.
        """


def examine(adapter: object) -> Health:
    """Check an adapter's servers, if it has any; blocks and raises as `Examined.health` does."""
    return adapter.health() if isinstance(adapter, Examined) else Health()
