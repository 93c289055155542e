"""Checks and the sources of their facts: which ones there are, and how they are run within a deadline."""

import inspect
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rioni.client import Client, ClientError
from rioni.domain.errors import Invalid, RioniError
from rioni.domain.texts import first_of, proposal


if TYPE_CHECKING:
    from rioni.config.settings import Config


# --- Sources that gather facts, checks of these facts, and their findings ---

OK, WARNING, ERROR, SKIPPED = "ok", "warning", "error", "skipped"
"""The outcomes of a check; the second and third are also the severities of findings."""


class DoctorFinding(msgspec.Struct, frozen=True):
    """Something that is wrong, or will be."""

    severity: str
    """`WARNING` or `ERROR`."""
    text: str
    """The problem, in a sentence."""
    advice: str
    """The remedy: a command, or a page of the documentation."""


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
    config: "Config | None" = None
    sources: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    error: str = ""


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
    findings: Sequence[DoctorFinding] = ()
    reason: str = ""
    """Why it was skipped."""
    wanted: bool = True
    """Whether an operator would want to know why it was skipped; see `Missing`."""
    note: str = ""
    """The part that was not checked."""


@dataclass(frozen=True)
class DoctorCheck:
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
    find: Callable[..., Iterable[DoctorFinding]]


@dataclass(frozen=True)
class Source:
    """Gathers facts, and changes nothing.

    Args:
        name: of the facts.
        needs: the names of other sources, whose facts are further arguments of `gather`.
        gather: called with the `Site`; may block, and raise RioniError, ClientError and OSError.
        gives: the type of the facts.
    """

    name: str
    needs: Sequence[str]
    gather: Callable[..., Any]
    gives: Any


def check(group: str, severity: str = WARNING) -> Callable[[Callable[..., Iterable[DoctorFinding]]], DoctorCheck]:
    """Make a function a check; its docstring describes its subject, its parameters are names of sources.

    Args:
        group: heading under which it is shown.
        severity: of its most severe finding.
    """

    def register(find: Callable[..., Iterable[DoctorFinding]]) -> DoctorCheck:
        looks_at = (inspect.getdoc(find) or "").partition("\n\n")[0].replace("\n", " ")
        needs = tuple(inspect.signature(find).parameters)
        return DoctorCheck(find.__name__.replace("_", "-"), group, severity, looks_at, needs, find)

    return register


def source(gather: Callable[..., Any]) -> Source:
    """Make a function a source of the same name; its first parameter is the `Site`, others are names of sources."""
    signature = inspect.signature(gather)
    return Source(gather.__name__, tuple(signature.parameters)[1:], gather, signature.return_annotation)


def warning(text: str, advice: str) -> DoctorFinding:
    """A finding that does not keep the broker from its work now."""
    return DoctorFinding(WARNING, text, advice)


def error(text: str, advice: str) -> DoctorFinding:
    """A finding that keeps the broker, or a client of it, from its work, or opens it to strangers."""
    return DoctorFinding(ERROR, text, advice)


NAMES_MAX = 5
"""Names that a finding lists."""


def listed(names: Sequence[str]) -> str:
    """The first few names."""
    return first_of(names, NAMES_MAX)


# --- The subject of a run, and its time limits ---

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
    interval_s: float = 3.0
    deadline_s: float = 25.0
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

    def pause(self) -> None:
        """Wait for the interval between two polls, but not beyond the deadline."""
        time.sleep(min(self.scope.interval_s, self.deadline.left_s))


# --- The tables of all checks and sources, and which ones are wanted ---

Member = TypeVar("Member", DoctorCheck, Source)
MODULES = ("connection", "broker", "metrics", "registry", "subscriptions", "settings", "processes", "machine", "disk")
GROUPS = ("Connection", "Broker", "Metrics", "Registry", "Consumers", "Settings", "Host", "Installation")
"""Groups of checks, in the order in which they are shown."""


def _members(kind: type[Member], table: str) -> Mapping[str, Member]:
    # Sources that one module imports from another occur twice; their names make them unique.
    found: list[object] = []
    for module in MODULES:
        members: dict[str, Any] = vars(import_module(f"rioni.cli.doctor.{module}"))
        found += [*members.values(), *members.get(table, ())]
    return {each.name: each for each in found if isinstance(each, kind)}


@cache
def all_sources() -> Mapping[str, Source]:
    """All sources by name."""
    return _members(Source, "SOURCES")


@cache
def all_checks() -> Mapping[str, DoctorCheck]:
    """All checks by name, in the order in which they are shown."""
    found = sorted(_members(DoctorCheck, "CHECKS").values(), key=lambda each: GROUPS.index(each.group))
    return {each.name: each for each in found}


def chosen(only: Collection[str] = (), skip: Collection[str] = ()) -> list[DoctorCheck]:
    """The checks that the user wants.

    Args:
        only: names of checks or groups; empty for all.
        skip: names of checks or groups.

    Raises:
        Invalid: there is no such check or group.
    """
    groups = [each.lower() for each in GROUPS]
    for name in (*only, *skip):
        if name not in all_checks() and name.lower() not in groups:
            raise Invalid(f"There is no check {name}{proposal(name, [*all_checks(), *groups], '; --list shows all.')}")
    wanted, unwanted = {each.lower() for each in only}, {each.lower() for each in skip}
    return [
        each
        for each in all_checks().values()
        if (not wanted or {each.name, each.group.lower()} & wanted) and not {each.name, each.group.lower()} & unwanted
    ]


def needed(checks: Sequence[DoctorCheck]) -> list[Source]:
    """The sources that these checks need, directly or not."""
    names: set[str] = set()
    waiting = [name for each in checks for name in each.needs]
    while waiting:
        if (name := waiting.pop()) not in names:
            names.add(name)
            waiting += all_sources()[name].needs
    return [each for name, each in all_sources().items() if name in names]


# --- Gathers the facts that checks need, at the same time and within the deadline, and runs the checks ---


def gather(site: Site, sources: Sequence[Source]) -> dict[str, Any]:
    """Facts by the name of their source, `Missing` if it has gathered none; blocks until the site's deadline at most.

    Args:
        site: to be examined.
        sources: with all that they need.
    """
    futures: dict[str, Future[Any]] = {each.name: Future() for each in sources}
    for each in sources:
        # Daemons: a thread that hangs, for example on a lost network file system, must not keep the command from
        # ending.
        threading.Thread(target=_look, args=(each, site, futures), daemon=True, name=f"doctor-{each.name}").start()
    return {name: _facts(future, site) for name, future in futures.items()}


def _look(source: Source, site: Site, futures: Mapping[str, Future[Any]]) -> None:
    try:
        needs = [_facts(futures[name], site) for name in source.needs]
        lacking = next((each for each in needs if isinstance(each, Missing)), None)
        found = lacking if lacking is not None else source.gather(site, *needs)
    except NotLookedAt as ex:
        found = Missing(str(ex), ex.wanted)
    except (ClientError, RioniError) as ex:
        found = Missing(str(ex))
    except Exception as ex:  # noqa: BLE001 - what one source meets with must not keep others from being looked at
        found = Missing(f"{type(ex).__name__}: {ex}")
    futures[source.name].set_result(found)


def _facts(future: Future[Any], site: Site) -> Any:
    try:
        return future.result(site.deadline.left_s)
    except TimeoutError:
        return Missing("it did not answer in time")


def run(checks: Sequence[DoctorCheck], facts: Mapping[str, Any]) -> list[Result]:
    """The result of each check; facts are those that may be shown, as findings contain them."""
    return [_result(each, [facts[name] for name in each.needs]) for each in checks]


def _result(check: DoctorCheck, facts: Sequence[Any]) -> Result:
    lacking = next((each for each in facts if isinstance(each, Missing)), None)
    findings: list[DoctorFinding] = []
    if lacking is None:
        try:
            findings = list(check.find(*facts))
        except Exception as ex:  # noqa: BLE001 - as in `_look`
            # The text of the exception may contain anything.
            lacking = Missing(f"the check has failed: {type(ex).__name__}")
    if lacking is not None:
        return Result(check.name, check.group, SKIPPED, check.looks_at, reason=lacking.reason, wanted=lacking.wanted)
    severities = {each.severity for each in findings}
    status = next((each for each in (ERROR, WARNING) if each in severities), OK)
    note = "; ".join(filter(None, (getattr(each, "partial", "") for each in facts)))
    return Result(check.name, check.group, status, check.looks_at, findings, note=note)
