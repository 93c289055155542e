"""The machine of the broker: its memory and clock, this Python and the packages that are installed."""

import contextlib
import ctypes
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
from rioni.cli.doctor.diagnosis import ERROR, DoctorFinding, NotLookedAt, Site, check, error, listed, source, warning
from rioni.cli.doctor.processes import PROC, number_in, sizes_in, text_of
from rioni.files.extras import requirement


# --- Memory and clock ---

GROUP = "Host"
CONTROL_GROUPS = Path("/sys/fs/cgroup")
LOW_RATIO = 0.1
_NOT_SYNCHRONISED = 5
"""TIME_ERROR of adjtimex."""
_TIMEX_BYTES = 512
"""A size larger than the structure of adjtimex has anywhere."""


class Memory(msgspec.Struct, frozen=True):
    """The memory of the machine, and the limit of the broker's control group."""

    total_bytes: int
    available_bytes: int
    swap_total_bytes: int = 0
    swap_free_bytes: int = 0
    limit_bytes: int | None = None
    """The limit of the group; None if the group has none, or can't be seen."""
    used_bytes: int | None = None
    """The memory that the group uses."""
    killed: int = 0
    """Processes of the group that were killed for want of memory."""


class ClockSync(msgspec.Struct, frozen=True):
    """Whether a time server keeps the clock of this machine right."""

    synchronised: bool


@source
def memory(site: Site) -> Memory:
    """Look at the memory of the machine, and of the control group of the broker."""
    host = site.beside_the_broker()
    found = sizes_in((PROC / "meminfo").read_text())
    memory = Memory(found["MemTotal"], found["MemAvailable"], found.get("SwapTotal", 0), found.get("SwapFree", 0))
    groups = re.search(r"^0::(/.*)$", text_of(PROC / str(host.pid) / "cgroup"), re.MULTILINE) if host.pid else None
    if groups is None:
        return memory
    group = CONTROL_GROUPS / groups[1].lstrip("/")
    return msgspec.structs.replace(
        memory,
        limit_bytes=number_in(r"^(\d+)$", text_of(group / "memory.max")),
        used_bytes=number_in(r"^(\d+)$", text_of(group / "memory.current")),
        killed=number_in(r"^oom_kill (\d+)$", text_of(group / "memory.events")) or 0,
    )


@source
def clock_sync(site: Site) -> ClockSync:
    """Ask the kernel whether a time server keeps the clock right, without setting anything."""
    site.beside_the_broker()
    state = -1
    with contextlib.suppress(AttributeError, OSError):
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    if state < 0:
        raise NotLookedAt("this system does not report it")
    return ClockSync(state != _NOT_SYNCHRONISED)


@check(GROUP)
def free_memory(memory: Memory) -> Iterator[DoctorFinding]:
    """Free memory of the machine and of the broker's control group, and processes that were killed for want of it."""
    advice = "Give the broker more memory, or lower the bounds that docs/operating/sizing.md names."
    if memory.available_bytes < LOW_RATIO * memory.total_bytes:
        yield warning(
            f"{memory.available_bytes / 2**30:.2f} of {memory.total_bytes / 2**30:.2f} GiB of memory are available.",
            advice,
        )
    if memory.limit_bytes and memory.used_bytes and memory.used_bytes > (1 - LOW_RATIO) * memory.limit_bytes:
        yield warning(
            f"The control group of the broker uses {memory.used_bytes / 2**30:.2f} of "
            f"{memory.limit_bytes / 2**30:.2f} GiB.",
            advice,
        )
    if memory.killed:
        yield warning(
            f"{memory.killed} processes of the broker's control group were killed for want of memory.", advice
        )


@check(GROUP)
def time_server(clock_sync: ClockSync) -> Iterator[DoctorFinding]:
    """Whether a time server keeps the clock of this machine right."""
    if not clock_sync.synchronised:
        yield warning(
            "The clock of this machine follows no time server.",
            "timedatectl set-ntp true, or start chronyd. Nodes and brokers of Kafka may differ by 30 s at most.",
        )


# --- This Python and its packages: those that Rioni needs, and those that are installed ---

PACKAGES_MAX = 500
DRIVERS = ("confluent_kafka", "kazoo", "psycopg")
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)")


class PackageConflict(msgspec.Struct, frozen=True):
    """A requirement that is not met."""

    package: str
    """The package that has the requirement."""
    requirement: str
    installed: str = ""
    """The version that is installed; empty if the package is missing."""


class InstalledPackages(msgspec.Struct, frozen=True):
    """This Python and its packages."""

    rioni: str
    python: str
    sqlite: str
    packages: dict[str, str]
    """The versions of what Rioni needs, directly or not."""
    conflicts: list[PackageConflict] = []
    drivers: list[str] = []
    """The drivers of a cluster that are there."""


class Pins(msgspec.Struct, frozen=True):
    """Versions that packages should have, and have not."""

    file: str
    wanted: int
    """The number of installed packages that the file names."""
    different: list[PackageConflict]


@source
def installation(site: Site) -> InstalledPackages:
    """Compare all requirements of Rioni, direct or not, with the installed packages."""
    del site
    packages: dict[str, str] = {}
    conflicts: list[PackageConflict] = []
    waiting = ["rioni"]
    while waiting and len(packages) < PACKAGES_MAX:
        package = waiting.pop()
        for wanted in _requirements(package):
            name = _normal(wanted.name)
            version = packages.get(name) or _version(name)
            if version is None or not wanted.specifier.contains(version, prereleases=True):
                conflicts.append(PackageConflict(package, str(wanted), version or ""))
            elif name not in packages:
                packages[name] = version
                waiting.append(name)
    drivers = [name for name in DRIVERS if importlib.util.find_spec(name) is not None]
    return InstalledPackages(
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
        PackageConflict(file.name, f"{name}=={wanted[name]}", version)
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


# --- Checks of packages ---

PACKAGES = "Installation"


@check(PACKAGES, ERROR)
def packages(installation: InstalledPackages) -> Iterator[DoctorFinding]:
    """Whether all packages that Rioni needs are installed here, in versions that fit."""
    for each in installation.conflicts:
        there = f"{each.installed} is installed" if each.installed else "it is missing"
        yield error(f"{each.package} needs {each.requirement}; {there}.", f"pip install '{each.requirement}'")


@check(PACKAGES)
def package_versions(pins: Pins) -> Iterator[DoctorFinding]:
    """Whether packages have the versions of the file that `--constraints` names."""
    if pins.different:
        shown = listed([f"{each.requirement} ({each.installed})" for each in pins.different])
        yield warning(
            f"{len(pins.different)} packages have another version than {pins.file} says: {shown}.",
            f"pip install --constraint {pins.file} {requirement()}",
        )
