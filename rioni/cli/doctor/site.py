"""What a run of `rioni doctor` looks at, and for how long."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rioni.cli.doctor.model import NotLookedAt
from rioni.client import Client
from rioni.config.settings import Config


DEADLINE_S = 25.0
INTERVAL_S = 3.0
REQUEST_S = 8.0
"""Longest time of a request: the health checks of a broker answer within 4 s."""


class Deadline:
    """A moment by which everything has to be done."""

    def __init__(self, seconds: float) -> None:
        self._at_s = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds until then; 0 after it."""
        return max(0.0, self._at_s - time.monotonic())


@dataclass(frozen=True)
class Host:
    """The host of a broker, as far as this user may see it.

    Args:
        data: the data directory.
        pid: of the process that has locked it; None if no broker runs on it.
        config: the settings; None if they can't be used.
        sources: where the value of each setting comes from.
        origin: whose settings they are, in words.
        error: why there are no settings.
    """

    data: Path
    pid: int | None = None
    config: Config | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    error: str = ""


@dataclass(frozen=True)
class Scope:
    """How closely to look.

    Args:
        logs: files that the log of the broker is written to.
        constraints: a file with the versions that packages should have.
        interval_s: between two looks at what changes.
        deadline_s: for everything.
        fsync: whether to measure how fast the disk is.
    """

    logs: Sequence[Path] = ()
    constraints: Path | None = None
    interval_s: float = INTERVAL_S
    deadline_s: float = DEADLINE_S
    fsync: bool = False


@dataclass(frozen=True)
class Site:
    """A broker, and what else there is to look at.

    Args:
        url: of the broker.
        client: of the broker, which does not try again.
        scope: how closely to look.
        deadline: for everything.
        token: that is shown to the broker, if any.
        token_error: why there is none although there should be.
        ca_certificate: file with the authorities to trust.
        host: None where this is not the host of the broker.
    """

    url: str
    client: Client
    scope: Scope
    deadline: Deadline
    token: str | None = None
    token_error: str = ""
    ca_certificate: Path | None = None
    host: Host | None = None

    def beside_the_broker(self) -> Host:
        """The host of the broker.

        Raises:
            NotLookedAt: this is not the host of the broker.
        """
        if self.host is None:
            raise NotLookedAt("this is not known to be the broker's host: name its data directory with --data")
        return self.host

    def running(self) -> int:
        """The process id of the broker.

        Raises:
            NotLookedAt: it does not run on this host.
        """
        host = self.beside_the_broker()
        if host.pid is None:
            raise NotLookedAt(f"no broker runs on {host.data}")
        return host.pid

    def pause(self) -> None:
        """Wait for the interval between two looks, but not beyond the deadline."""
        time.sleep(min(self.scope.interval_s, self.deadline.left_s))
