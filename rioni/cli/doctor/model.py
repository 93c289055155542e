"""What `rioni doctor` is made of: sources that gather facts, checks of these facts, and their findings."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rioni.domain.errors import RioniError


OK, WARNING, ERROR, SKIPPED = "ok", "warning", "error", "skipped"
"""The outcomes of a check; the second and third are also the severities of findings."""


class Finding(msgspec.Struct, frozen=True):
    """Something that is wrong, or will be."""

    severity: str
    """`WARNING` or `ERROR`."""
    text: str
    """What is wrong, in a sentence."""
    advice: str
    """What to do: a command, or a page of the documentation."""


class Missing(msgspec.Struct, frozen=True):
    """In place of facts that could not be gathered."""

    reason: str
    wanted: bool = True
    """Whether an operator would want to know: False for what was not asked for, or does not exist there."""


class NotLookedAt(RioniError):
    """A source can't gather its facts; the text says why."""

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
    """As of `Missing`."""
    note: str = ""
    """What it has not looked at."""


@dataclass(frozen=True)
class Check:
    """A check: a pure function of facts.

    Args:
        name: of the check.
        group: heading under which it is shown.
        severity: of its most severe finding.
        looks_at: what it is about, in a sentence.
        needs: the names of the sources whose facts are the arguments of `find`.
        find: yields what is wrong.
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
    """Make a function a check; its docstring says what it looks at, its parameters are names of sources.

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
