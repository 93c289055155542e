"""The broker on this host: its process and settings, found by the lock of its data directory, and its machine.

Nothing is locked or opened for writing: all facts are those of /proc.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from itertools import dropwhile
from pathlib import Path
from typing import Any

import msgspec

from rioni.cli.doctor.connection import Reach
from rioni.cli.doctor.diagnosis import ERROR, DoctorFinding, Host, NotLookedAt, Site, check, error, source, warning
from rioni.cli.doctor.disk import LINE_CHARACTERS_MAX, LINES_SHOWN, LogFile
from rioni.config.loading import FILE, FILE_VARIABLE, Loaded, load
from rioni.config.settings import SETTINGS, Config, ConfigError


# --- Finds the broker: the process that has locked the data directory, and the settings that it runs with ---

PROC = Path("/proc")
COMMANDS = ("serve", "demo")
"""Commands of `rioni` that run a broker."""


def locate(data: Path | None, config_file: Path | None, environ: Mapping[str, str] = os.environ) -> Host | None:
    """Find the broker's data, process and settings on this host; None if nothing shows that this is its host.

    Settings are those of the process, if this user may see them, otherwise those of the file and the environment.

    Args:
        data: the data directory, if it was named.
        config_file: a file with settings, if it was named.
        environ: the environment.
    """
    loaded, problem = None, ""
    try:
        loaded = load({"data": None if data is None else str(data)}, file=config_file, environ=environ)
    except ConfigError as ex:
        problem = str(ex)
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
    # 1: FLOCK  ADVISORY  WRITE 4711 fe:00:10109066 0 EOF
    holder = number_in(rf"^\S+\s+FLOCK\s+\S+\s+\S+\s+(-?\d+)\s+\S*:{inode}\s", locks)
    return holder if holder is None or pid is None else pid


def _settings_of(pid: int) -> Loaded | None:
    """The settings that a process was started with; None if they can't be seen."""
    try:
        words, texts = (
            (PROC / str(pid) / each).read_bytes().decode(errors="replace").split("\0")
            for each in ("cmdline", "environ")
        )
        folder = (PROC / str(pid) / "cwd").readlink()
    except OSError:
        return None
    rest = dropwhile(lambda word: word not in COMMANDS, words)
    if next(rest, None) is None:
        return None
    flags = dict(_flags(rest))
    environ = dict(text.split("=", 1) for text in texts if "=" in text)
    named = flags.pop("config", None) or environ.get(FILE_VARIABLE) or ""
    file = folder / (named or FILE)
    try:
        # Without a file this would be the one of our own working directory.
        loaded = load(flags, file=file if named or file.exists() else Path(os.devnull), environ=environ)
    except ConfigError:
        return None
    return Loaded(_with_absolute_paths(loaded.config, folder), loaded.sources)


def _flags(rest: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """Settings that the words of a command line give."""
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

LISTENING = "0A"


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


@source
def processes(site: Site) -> Processes:
    """Look at the processes of the broker."""
    host = site.beside_the_broker()
    if host.pid is None:
        return Processes(str(host.data), [])
    children = text_of(PROC / str(host.pid) / "task" / str(host.pid) / "children").split()
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
    return Port(
        number, listening=True, pid=pid, command="" if pid is None else text_of(PROC / str(pid) / "comm").strip()
    )


def _process(pid: int) -> Process:
    folder = PROC / str(pid)
    status = text_of(folder / "status")
    sizes = sizes_in(status)
    open_files = None
    with contextlib.suppress(OSError):
        open_files = sum(1 for _ in (folder / "fd").iterdir())
    return Process(
        pid,
        open_files,
        number_in(r"^Max open files +(\d+)", text_of(folder / "limits")),
        sizes.get("VmRSS"),
        sizes.get("VmSwap"),
        suspended=re.search(r"^State:\s*[Tt]", status, re.MULTILINE) is not None,
    )


def number_in(pattern: str, text: str) -> int | None:
    """The number that the first group of a pattern finds in some lines; None if it finds none."""
    found = re.search(pattern, text, re.MULTILINE)
    return int(found[1]) if found else None


def sizes_in(text: str) -> Mapping[str, int]:
    """Sizes in bytes, of lines such as `MemTotal:  16315412 kB`."""
    return {name: 1024 * int(size) for name, size in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}


def _listeners(number: int) -> Iterator[str]:
    """The inodes of sockets that listen on a port."""
    for table in ("tcp", "tcp6"):
        for line in text_of(PROC / "net" / table).splitlines()[1:]:
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


def text_of(path: Path) -> str:
    """The text of a file; empty if it can't be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


# --- Checks of the processes and of the machine ---

GROUP = "Host"
OPEN_FILES_MIN = 4_096
"""Each connection is an open file; a worker serves 10,000."""
OPEN_FILES_RATIO = 0.8
SWAPPED_BYTES = 100 * 2**20


@check(GROUP, ERROR)
def process(processes: Processes, reach: Reach, last_lines: list[LogFile]) -> Iterator[DoctorFinding]:
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
            "Start it (`rioni serve`), and read its output; with --log FILE the end of its log is shown here. "
            "`rioni verify` finds damaged and missing data.",
        )


def _last(file: LogFile) -> list[str]:
    return [line[:LINE_CHARACTERS_MAX] for line in file.text.splitlines()[-LINES_SHOWN:]]


@check(GROUP, ERROR)
def port_in_use(port: Port, reach: Reach) -> Iterator[DoctorFinding]:
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
def open_files(processes: Processes) -> Iterator[DoctorFinding]:
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
def swap(processes: Processes) -> Iterator[DoctorFinding]:
    """Whether memory of the broker is on a disk."""
    swapped = sum(each.swapped_bytes or 0 for each in processes.items)
    if swapped > SWAPPED_BYTES:
        yield warning(
            f"{swapped / 2**20:,.0f} MiB of the broker are swapped out: each access waits for a disk.",
            "Give the machine more memory, or switch swapping off for the broker (MemorySwapMax=0).",
        )


@check(GROUP, ERROR)
def unreachable_here(reach: Reach, processes: Processes) -> Iterator[DoctorFinding]:
    """Whether a broker that runs on this host answers."""
    if reach.error and processes.items:
        yield error(
            f"The broker of {processes.data} runs (process {processes.items[0].pid}), but {reach.url} does not answer.",
            "Compare the URL with the address in its log (`serves http`); if they are the same it hangs: "
            "docs/operating/monitoring.md#threads-that-hang",
        )
