"""The broker on this host: its process and settings, found by the lock of its data directory, and its machine.

Nothing is locked or opened for writing: all facts are those of /proc.
"""

import contextlib
import ctypes
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from rioni.cli.doctor.connection import Reach
from rioni.cli.doctor.diagnosis import ERROR, Finding, NotLookedAt, Site, check, error, source, warning
from rioni.cli.doctor.disk import LINE_CHARACTERS_MAX, LINES_SHOWN, LogFile
from rioni.config.loading import FILE, FILE_VARIABLE, Loaded, load
from rioni.config.settings import SETTINGS, Config, ConfigError


# --- Finds the broker: the process that has locked the data directory, and the settings that it runs with ---

PROC = Path("/proc")
COMMANDS = ("serve", "demo")
"""Commands of `rioni` that run a broker."""


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


def locate(data: Path | None, config_file: Path | None, environ: Mapping[str, str] = os.environ) -> Host | None:
    """Find the broker's data, process and settings on this host; None if nothing shows that this is its host.

    Settings are those of the process, if this user may see them, otherwise those of the file and the environment.

    Args:
        data: the data directory, if it was named.
        config_file: a file with settings, if it was named.
        environ: the environment.
    """
    loaded, problem = _own_settings(data, config_file, environ)
    path = data or (loaded.config.data if loaded else Config().data)
    if data is None and config_file is None and not (path / "format").exists():
        return None
    path = path.absolute()
    pid = lock_holder(path / "lock")
    running = None if pid is None else _settings_of(pid)
    if running is not None:
        return Host(path, pid, running.config, running.sources, f"process {pid}")
    if loaded is None:
        return Host(path, pid, error=problem)
    config = _with_absolute_paths(loaded.config, Path.cwd())
    return Host(path, pid, config, loaded.sources, str(config_file or "environment"))


def lock_holder(path: Path) -> int | None:
    """The process that has locked a file, or that wrote its id into it if /proc/locks shows none; None if free."""
    try:
        inode, written = path.stat().st_ino, path.read_text(errors="replace").strip()
    except OSError:
        return None
    pid = int(written) if written.isdecimal() else None
    try:
        locks = (PROC / "locks").read_text()
    except OSError:
        return pid if pid is not None and (PROC / str(pid)).exists() else None
    holders = [fields[4] for fields in map(str.split, locks.splitlines()) if _is_lock_of(fields, inode)]
    if not holders:
        return None
    return pid if pid is not None else int(holders[0])


def _is_lock_of(fields: list[str], inode: int) -> bool:
    # 1: FLOCK  ADVISORY  WRITE 4711 fe:00:10109066 0 EOF
    return len(fields) > 5 and fields[1] == "FLOCK" and fields[5].endswith(f":{inode}")  # noqa: PLR2004 - as above


def _own_settings(data: Path | None, config_file: Path | None, environ: Mapping[str, str]) -> tuple[Loaded | None, str]:
    try:
        return load({"data": None if data is None else str(data)}, file=config_file, environ=environ), ""
    except ConfigError as ex:
        return None, str(ex)


def _settings_of(pid: int) -> Loaded | None:
    """The settings that a process was started with; None if they can't be seen."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        texts = (PROC / str(pid) / "environ").read_bytes().decode(errors="replace").split("\0")
        folder = (PROC / str(pid) / "cwd").readlink()
    except OSError:
        return None
    command = next((place for place, word in enumerate(words) if word in COMMANDS), None)
    if command is None:
        return None
    flags = dict(_flags(words[command + 1 :]))
    environ = dict(text.split("=", 1) for text in texts if "=" in text)
    named = flags.pop("config", None) or environ.get(FILE_VARIABLE) or ""
    file = folder / (named or FILE)
    try:
        # Without a file this would be the one of our own working directory.
        loaded = load(flags, file=file if named or file.exists() else Path(os.devnull), environ=environ)
    except ConfigError:
        return None
    return Loaded(_with_absolute_paths(loaded.config, folder), loaded.sources)


def _flags(words: list[str]) -> Iterator[tuple[str, Any]]:
    """Settings that the words of a command line give."""
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if name in SETTINGS and SETTINGS[name].kind is bool:
            yield name, "true"
        elif name in SETTINGS or name == "config":
            yield name, value if equals else next(rest, None)


def _with_absolute_paths(config: Config, folder: Path) -> Config:
    paths = {name: getattr(config, name) for name, setting in SETTINGS.items() if setting.kind is Path}
    return msgspec.structs.replace(config, **{name: folder / path for name, path in paths.items() if path is not None})


# --- The processes of the broker and their limits, the port, memory and clock of its machine ---

CONTROL_GROUPS = Path("/sys/fs/cgroup")
LISTENING = "0A"
_NOT_SYNCHRONISED = 5
"""TIME_ERROR of adjtimex."""
_TIMEX_BYTES = 512
"""A size larger than the structure of adjtimex has anywhere."""


class Process(msgspec.Struct, frozen=True):
    """A process of the broker; facts that this user may not see are None."""

    pid: int
    open_files: int | None = None
    open_files_max: int | None = None
    resident_bytes: int | None = None
    swapped_bytes: int | None = None
    suspended: bool = False
    """Whether a signal has stopped it, until another one lets it go on."""


class Processes(msgspec.Struct, frozen=True):
    """The processes of the broker; without a process it does not run."""

    data: str
    items: list[Process]
    """The main process first, then the workers."""


class Port(msgspec.Struct, frozen=True):
    """The port of the broker."""

    port: int
    listening: bool
    """Whether a process accepts connections there."""
    pid: int | None = None
    """The id of that process, if it is not the broker and this user may see it."""
    command: str = ""
    broker: bool = False
    """Whether a broker runs on the data directory."""


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
def processes(site: Site) -> Processes:
    """Look at the processes of the broker."""
    host = site.beside_the_broker()
    if host.pid is None:
        return Processes(str(host.data), [])
    children = _text(PROC / str(host.pid) / "task" / str(host.pid) / "children").split()
    return Processes(str(host.data), [_process(pid) for pid in (host.pid, *map(int, children))])


@source
def port(site: Site) -> Port:
    """Find the process that listens on the broker's port."""
    host = site.beside_the_broker()
    if host.config is None or not host.config.port:
        raise NotLookedAt("the port is not known")
    number = host.config.port
    inodes = set(_listeners(number))
    if not inodes or host.pid is not None:
        return Port(number, bool(inodes), broker=host.pid is not None)
    pid = _owner_of(inodes, site)
    return Port(number, listening=True, pid=pid, command="" if pid is None else _text(PROC / str(pid) / "comm").strip())


@source
def memory(site: Site) -> Memory:
    """Look at the memory of the machine, and of the control group of the broker."""
    host = site.beside_the_broker()
    found = _sizes((PROC / "meminfo").read_text())
    memory = Memory(found["MemTotal"], found["MemAvailable"], found.get("SwapTotal", 0), found.get("SwapFree", 0))
    groups = re.search(r"^0::(/.*)$", _text(PROC / str(host.pid) / "cgroup"), re.MULTILINE) if host.pid else None
    if groups is None:
        return memory
    group = CONTROL_GROUPS / groups[1].lstrip("/")
    limit, used = _text(group / "memory.max").strip(), _text(group / "memory.current").strip()
    killed = re.search(r"^oom_kill (\d+)$", _text(group / "memory.events"), re.MULTILINE)
    return msgspec.structs.replace(
        memory,
        limit_bytes=int(limit) if limit.isdecimal() else None,
        used_bytes=int(used) if used.isdecimal() else None,
        killed=int(killed[1]) if killed else 0,
    )


@source
def clock_sync(site: Site) -> ClockSync:
    """Ask the kernel whether a time server keeps the clock right, without setting anything."""
    site.beside_the_broker()
    try:
        adjtimex = ctypes.CDLL(None).adjtimex
    except (AttributeError, OSError) as ex:
        raise NotLookedAt("this system does not tell") from ex
    state = adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    if state < 0:
        raise NotLookedAt("this system does not tell")
    return ClockSync(state != _NOT_SYNCHRONISED)


def _process(pid: int) -> Process:
    folder = PROC / str(pid)
    status = _text(folder / "status")
    sizes = _sizes(status)
    limit = re.search(r"^Max open files +(\d+)", _text(folder / "limits"), re.MULTILINE)
    open_files = None
    with contextlib.suppress(OSError):
        open_files = sum(1 for _ in (folder / "fd").iterdir())
    return Process(
        pid,
        open_files,
        int(limit[1]) if limit else None,
        sizes.get("VmRSS"),
        sizes.get("VmSwap"),
        suspended=re.search(r"^State:\s*[Tt]", status, re.MULTILINE) is not None,
    )


def _sizes(text: str) -> Mapping[str, int]:
    """Sizes in bytes, of lines such as `MemTotal:  16315412 kB`."""
    return {name: 1024 * int(size) for name, size in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}


def _listeners(number: int) -> Iterator[str]:
    """The inodes of sockets that listen on a port."""
    for table in ("tcp", "tcp6"):
        for line in _text(PROC / "net" / table).splitlines()[1:]:
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == number and fields[3] == LISTENING:
                yield fields[9]


def _owner_of(inodes: set[str], site: Site) -> int | None:
    """The process with such a socket; None if this user may not see it."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for folder in PROC.iterdir():
        if not site.deadline.left_s:
            return None
        if folder.name.isdecimal() and not wanted.isdisjoint(_open_files(folder)):
            return int(folder.name)
    return None


def _open_files(process: Path) -> Iterator[str]:
    """The files that a process has open, if this user may see them, without those that it closes meanwhile."""
    with contextlib.suppress(OSError):
        for each in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(each.readlink())


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


# --- Checks of the processes and of the machine ---

GROUP = "Host"
LOW_RATIO = 0.1
OPEN_FILES_MIN = 4_096
"""Each connection is an open file; a worker serves 10,000."""
OPEN_FILES_RATIO = 0.8
SWAPPED_BYTES = 100 * 2**20


@check(GROUP, ERROR)
def process(processes: Processes, reach: Reach, last_lines: list[LogFile]) -> Iterator[Finding]:
    """Whether a broker runs on the data directory, and none of its processes is suspended."""
    for each in processes.items:
        if each.suspended:
            yield error(f"The process {each.pid} of the broker is suspended.", f"kill -CONT {each.pid}")
    if processes.items:
        return
    if not reach.error:
        yield warning(
            f"{reach.url} answers, but no process that this host shows has locked {processes.data}.",
            "It is the data directory of another broker, or the broker runs in a container: run the command there.",
        )
    else:
        said = "".join(f" {each.path} ends with: {' | '.join(_last(each))}" for each in last_lines if each.text)
        yield error(
            f"No broker runs on {processes.data}.{said}",
            "Start it (`rioni serve`), and look at what it says; with --log FILE the end of its log is shown here. "
            "`rioni verify` finds what is damaged or missing.",
        )


def _last(file: LogFile) -> list[str]:
    return [line[:LINE_CHARACTERS_MAX] for line in file.text.splitlines()[-LINES_SHOWN:]]


@check(GROUP, ERROR)
def port_in_use(port: Port, reach: Reach) -> Iterator[Finding]:
    """Whether the port of the broker is free for it, or the broker listens there."""
    if port.broker and not port.listening:
        yield error(
            f"The broker runs, but nothing listens on its port {port.port}.",
            "It is starting, or another port was chosen: its log names the address (`serves http`).",
        )
    elif port.listening and not port.broker and reach.error:
        who = f"the process {port.pid} ({port.command})" if port.pid else "another process"
        yield error(
            f"The broker does not run, and {who} uses its port {port.port}.",
            "End that process, or choose another port.",
        )


@check(GROUP, ERROR)
def open_files(processes: Processes) -> Iterator[Finding]:
    """Whether processes of the broker may open enough files, which connections are, too."""
    advice = "Raise the limit: LimitNOFILE=65536 in the unit of systemd, or `ulimit -n 65536` before the start."
    limits = [each.open_files_max for each in processes.items if each.open_files_max is not None]
    if limits and min(limits) < OPEN_FILES_MIN:
        yield warning(f"A process of the broker may open {min(limits):,} files, and serves 10,000 connections.", advice)
    for each in processes.items:
        if each.open_files and each.open_files_max and each.open_files > OPEN_FILES_RATIO * each.open_files_max:
            yield error(
                f"The process {each.pid} has opened {each.open_files:,} of {each.open_files_max:,} files.", advice
            )


@check(GROUP)
def free_memory(memory: Memory) -> Iterator[Finding]:
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
def swap(processes: Processes) -> Iterator[Finding]:
    """Whether memory of the broker is on a disk."""
    swapped = sum(each.swapped_bytes or 0 for each in processes.items)
    if swapped > SWAPPED_BYTES:
        yield warning(
            f"{swapped / 2**20:,.0f} MiB of the broker are swapped out: each access waits for a disk.",
            "Give the machine more memory, or switch swapping off for the broker (MemorySwapMax=0).",
        )


@check(GROUP)
def time_server(clock_sync: ClockSync) -> Iterator[Finding]:
    """Whether a time server keeps the clock of this machine right."""
    if not clock_sync.synchronised:
        yield warning(
            "The clock of this machine follows no time server.",
            "timedatectl set-ntp true, or start chronyd. Nodes and brokers of Kafka may differ by 30 s at most.",
        )


@check(GROUP, ERROR)
def unreachable_here(reach: Reach, processes: Processes) -> Iterator[Finding]:
    """Whether a broker that runs on this host answers."""
    if reach.error and processes.items:
        yield error(
            f"The broker of {processes.data} runs (process {processes.items[0].pid}), but {reach.url} does not answer.",
            "Compare the URL with the address in its log (`serves http`); if they are the same it hangs: "
            "docs/operating/monitoring.md#threads-that-hang",
        )
