"""The table of all checks, and of the sources of their facts."""

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType

from rioni.cli.doctor.model import Check, Source
from rioni.domain.errors import Invalid
from rioni.domain.nearest import proposal


_CHECKS = ("connection", "state", "metrics", "administration", "consumers", "settings", "host", "installation")
_FACTS = ("connection", "state", "metrics", "registry", "settings", "files", "machine", "servers", "installation")


def _members(package: str, modules: Sequence[str]) -> list[object]:
    found = [import_module(f"rioni.cli.doctor.{package}.{module}") for module in modules]
    # What a module imports from another one is there twice; the names below decide.
    return [each for module in found for each in vars(module).values()]


CHECKS: Mapping[str, Check] = MappingProxyType(
    {each.name: each for each in _members("checks", _CHECKS) if isinstance(each, Check)}
)
"""All checks by name, in the order in which they are shown."""
SOURCES: Mapping[str, Source] = MappingProxyType(
    {each.name: each for each in _members("facts", _FACTS) if isinstance(each, Source)}
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
