"""Health of a dependency of the broker."""

from typing import Protocol, runtime_checkable

import msgspec


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    reason: str = ""
    """Why it does not do its work; empty where it does."""
    detail: str = ""
    """What else there is to say."""
    warnings: tuple[str, ...] = ()
    """Warnings: works, but should be corrected."""

    @property
    def status(self) -> str:
        """One word: ok, warning or failed."""
        return "failed" if self.reason else "warning" if self.warnings else "ok"


@runtime_checkable
class Examined(Protocol):
    """An adapter whose servers can be out of reach."""

    def health(self) -> Health:
        """Ask the servers; blocks for some seconds at most.

        Raises:
            Unavailable: they do not answer.
        """


def examine(adapter: object) -> Health:
    """Ask the servers of an adapter, if they can be out of reach; blocks and raises as `Examined.health`."""
    return adapter.health() if isinstance(adapter, Examined) else Health()
