"""All checks and the sources of their facts: which ones are wanted, and how they are run within the deadline."""

import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from importlib import import_module
from types import MappingProxyType
from typing import Any

from rioni.cli.doctor.model import ERROR, OK, SKIPPED, WARNING, Check, Missing, NotLookedAt, Result, Site, Source
from rioni.client import ClientError
from rioni.domain.errors import Invalid, RioniError
from rioni.domain.nearest import proposal


# --- The table of all checks, and of the sources of their facts ---

_CHECKS = ("connection", "state", "metrics", "administration", "settings", "host", "installation")
_FACTS = ("connection", "state", "metrics", "registry", "settings", "files", "machine", "installation")


def _members(modules: Sequence[str]) -> list[object]:
    found = [import_module(f"rioni.cli.doctor.checks.{module}") for module in modules]
    # Members that one module imports from another occur twice; the names below make them unique.
    return [each for module in found for each in vars(module).values()]


CHECKS: Mapping[str, Check] = MappingProxyType(
    {each.name: each for each in _members(_CHECKS) if isinstance(each, Check)}
)
"""All checks by name, in the order in which they are shown."""
SOURCES: Mapping[str, Source] = MappingProxyType(
    {each.name: each for each in _members(_FACTS) if isinstance(each, Source)}
)
"""All sources by name."""


def chosen(only: Collection[str] = (), skip: Collection[str] = ()) -> list[Check]:
    """The checks that the user wants.

    Args:
        only: names of checks or groups; empty for all.
        skip: names of checks or groups.

    Raises:
        Invalid: there is no such check or group.
    """
    groups = {each.group.lower() for each in CHECKS.values()}
    for name in (*only, *skip):
        if name not in CHECKS and name.lower() not in groups:
            raise Invalid(f"There is no check {name}{proposal(name, [*CHECKS, *groups], '; --list shows all.')}")
    wanted, unwanted = {each.lower() for each in only}, {each.lower() for each in skip}
    return [
        each
        for each in CHECKS.values()
        if (not wanted or {each.name, each.group.lower()} & wanted) and not {each.name, each.group.lower()} & unwanted
    ]


def needed(checks: Sequence[Check]) -> list[Source]:
    """The sources that these checks need, directly or not."""
    names: list[str] = []
    waiting = [name for each in checks for name in each.needs]
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.append(name)
            waiting += SOURCES[name].needs
    return [each for name, each in SOURCES.items() if name in names]


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


def run(checks: Sequence[Check], facts: Mapping[str, Any]) -> list[Result]:
    """The result of each check."""
    return [_result(each, [facts[name] for name in each.needs]) for each in checks]


def _result(check: Check, facts: Sequence[Any]) -> Result:
    result = Result(check.name, check.group, OK, check.looks_at)
    lacking = next((each for each in facts if isinstance(each, Missing)), None)
    if lacking is not None:
        return _skipped(check, lacking.reason, wanted=lacking.wanted)
    try:
        findings = check(*facts)
    except Exception as ex:  # noqa: BLE001 - as in `_look`
        return _skipped(check, f"the check has failed: {type(ex).__name__}: {ex}")
    severities = {each.severity for each in findings}
    status = next((each for each in (ERROR, WARNING) if each in severities), OK)
    note = "; ".join(filter(None, (getattr(each, "partial", "") for each in facts)))
    return Result(result.check, result.group, status, result.looks_at, findings, note=note)


def _skipped(check: Check, reason: str, *, wanted: bool = True) -> Result:
    return Result(check.name, check.group, SKIPPED, check.looks_at, reason=reason, wanted=wanted)
