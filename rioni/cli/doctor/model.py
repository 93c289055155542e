"""The parts of `rioni doctor`: the subject of a run, sources that gather facts, checks of these, and findings."""

import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from rioni.client import Client
from rioni.config.settings import Config
from rioni.domain.errors import RioniError


# --- Sources that gather facts, checks of these facts, and their findings ---

OK, WARNING, ERROR, SKIPPED = "ok", "warning", "error", "skipped"
"""The outcomes of a check; the second and third are also the severities of findings."""


class Finding(msgspec.Struct, frozen=True):
    """Something that is wrong, or will be."""

    severity: str
    """`WARNING` or `ERROR`."""
    text: str
    """The problem, in a sentence."""
    advice: str
    """The remedy: a command, or a page of the documentation."""


class Missing(msgspec.Struct, frozen=True):
    """A placeholder for facts that could not be gathered."""

    reason: str
    wanted: bool = True
    """Whether an operator would want to know: False if the facts were not asked for, or do not exist there."""


class NotLookedAt(RioniError):
    """A source can't gather its facts; the text gives the reason."""

    def __init__(self, reason: str, *, wanted: bool = True) -> None:
        super().__init__(reason)
        self.wanted = wanted


class Result(msgspec.Struct, frozen=True):
    """The outcome of a check."""

    check: str
    group: str
    status: str
    looks_at: str
    findings: Sequence[Finding] = ()
    reason: str = ""
    """Why it was skipped."""
    wanted: bool = True
    """Whether an operator would want to know why it was skipped; see `Missing`."""
    note: str = ""
    """The part that was not checked."""


@dataclass(frozen=True)
class Check:
    """A check: a pure function of facts.

    Args:
        name: of the check.
        group: heading under which it is shown.
        severity: of its most severe finding.
        looks_at: its subject, in a sentence.
        needs: the names of the sources whose facts are the arguments of `find`.
        find: yields the findings.
    """

    name: str
    group: str
    severity: str
    looks_at: str
    needs: Sequence[str]
    find: Callable[..., Iterable[Finding]]

    def __call__(self, *facts: Any) -> list[Finding]:
        """All findings."""
        return list(self.find(*facts))


@dataclass(frozen=True)
class Source:
    """Gathers facts, and changes nothing.

    Args:
        name: of the facts.
        needs: the names of other sources, whose facts are further arguments of `gather`.
        gather: called with the `Site`; may block, and raise RioniError, ClientError and OSError.
    """

    name: str
    needs: Sequence[str]
    gather: Callable[..., Any]


def check(group: str, severity: str = WARNING) -> Callable[[Callable[..., Iterable[Finding]]], Check]:
    """Make a function a check; its docstring describes its subject, its parameters are names of sources.

    Args:
        group: heading under which it is shown.
        severity: of its most severe finding.
    """

    def register(find: Callable[..., Iterable[Finding]]) -> Check:
        looks_at = (inspect.getdoc(find) or "").partition("\n\n")[0].replace("\n", " ")
        needs = tuple(inspect.signature(find).parameters)
        return Check(find.__name__.replace("_", "-"), group, severity, looks_at, needs, find)

    return register


def source(gather: Callable[..., Any]) -> Source:
    """Make a function a source of the same name; its first parameter is the `Site`, others are names of sources."""
    _, *needs = inspect.signature(gather).parameters
    return Source(gather.__name__, tuple(needs), gather)


def warning(text: str, advice: str) -> Finding:
    """A finding that does not keep the broker from its work now."""
    return Finding(WARNING, text, advice)


def error(text: str, advice: str) -> Finding:
    """A finding that keeps the broker, or a client of it, from its work, or opens it to strangers."""
    return Finding(ERROR, text, advice)


# --- The subject of a run, and its time limits ---

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
    """The host of a broker, or the part of it that this user may see.

    Args:
        data: the data directory.
        pid: of the process that has locked it; None if no broker runs on it.
        config: the settings; None if they can't be used.
        sources: where the value of each setting comes from.
        origin: the owner of the settings, in words.
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
    """The options of a run.

    Args:
        logs: files that the log of the broker is written to.
        constraints: a file with the versions that packages should have.
        interval_s: between two polls of facts that change.
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
    """A broker, and everything else to examine.

    Args:
        url: of the broker.
        client: of the broker, which does not try again.
        scope: how closely to look.
        deadline: for everything.
        token: for the broker, if any.
        token_error: why there is no token although there should be.
        ca_certificate: file with the authorities to trust.
        host: None if this is not the host of the broker.
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
        """Wait for the interval between two polls, but not beyond the deadline."""
        time.sleep(min(self.scope.interval_s, self.deadline.left_s))
