"""This Python and its packages, which are those of the broker where both are installed together."""

import importlib.metadata
import importlib.util
import platform
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from rioni import __version__
from rioni.cli.doctor.model import ERROR, Finding, NotLookedAt, Site, check, error, source, warning
from rioni.files.extras import requirement


# --- This Python and its packages: those that Rioni needs, and those that are installed ---

PACKAGES_MAX = 500
DRIVERS = ("confluent_kafka", "kazoo", "psycopg")
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)")


class Conflict(msgspec.Struct, frozen=True):
    """A requirement that is not met."""

    package: str
    """The package that has the requirement."""
    requirement: str
    installed: str = ""
    """The version that is installed; empty if the package is missing."""


class Installation(msgspec.Struct, frozen=True):
    """This Python and its packages."""

    rioni: str
    python: str
    sqlite: str
    packages: dict[str, str]
    """The versions of what Rioni needs, directly or not."""
    conflicts: list[Conflict] = []
    drivers: list[str] = []
    """The drivers of a cluster that are there."""


class Pins(msgspec.Struct, frozen=True):
    """Versions that packages should have, and have not."""

    file: str
    wanted: int
    """The number of installed packages that the file names."""
    different: list[Conflict]


@source
def installation(site: Site) -> Installation:
    """Compare all requirements of Rioni, direct or not, with the installed packages."""
    del site
    packages: dict[str, str] = {}
    conflicts: list[Conflict] = []
    waiting = ["rioni"]
    while waiting and len(packages) < PACKAGES_MAX:
        package = waiting.pop()
        for wanted in _requirements(package):
            name = _normal(wanted.name)
            version = packages.get(name) or _version(name)
            if version is None or not wanted.specifier.contains(version, prereleases=True):
                conflicts.append(Conflict(package, str(wanted), version or ""))
            elif name not in packages:
                packages[name] = version
                waiting.append(name)
    drivers = [name for name in DRIVERS if importlib.util.find_spec(name) is not None]
    return Installation(
        __version__,
        platform.python_version(),
        sqlite3.sqlite_version,
        dict(sorted(packages.items())),
        conflicts,
        drivers,
    )


@source
def pins(site: Site) -> Pins:
    """Compare the installed packages with a file of constraints."""
    if site.scope.constraints is None:
        raise NotLookedAt("no file with the versions of packages was named: --constraints", wanted=False)
    return compared(site.scope.constraints)


def compared(file: Path) -> Pins:
    """The differences to a file with lines such as `gevent==26.9.0`; raises OSError."""
    pinned = map(_PINNED.match, file.read_text().splitlines())
    wanted = {found[1]: found[2] for found in pinned if found}
    installed = {name: version for name in wanted if (version := _version(name)) is not None}
    different = [
        Conflict(file.name, f"{name}=={wanted[name]}", version)
        for name, version in sorted(installed.items())
        if version != wanted[name]
    ]
    return Pins(str(file), len(installed), different)


def _requirements(package: str) -> Iterator[Requirement]:
    """The requirements of a package on this machine, without those of its extras."""
    try:
        texts = importlib.metadata.requires(package) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for text in texts:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# --- Checks of this Python and its packages, which are those of the broker if both are installed together ---

GROUP = "Installation"
SHOWN_MAX = 5


@check(GROUP, ERROR)
def packages(installation: Installation) -> Iterator[Finding]:
    """Whether all packages that Rioni needs are installed here, in versions that fit."""
    for each in installation.conflicts:
        there = f"{each.installed} is installed" if each.installed else "it is missing"
        yield error(f"{each.package} needs {each.requirement}; {there}.", f"pip install '{each.requirement}'")


@check(GROUP)
def package_versions(pins: Pins) -> Iterator[Finding]:
    """Whether packages have the versions of the file that `--constraints` names."""
    if pins.different:
        shown = ", ".join(f"{each.requirement} ({each.installed})" for each in pins.different[:SHOWN_MAX])
        more = f", and {len(pins.different) - SHOWN_MAX} more" if len(pins.different) > SHOWN_MAX else ""
        yield warning(
            f"{len(pins.different)} packages have another version than {pins.file} says: {shown}{more}.",
            f"pip install --constraint {pins.file} {requirement()}",
        )
