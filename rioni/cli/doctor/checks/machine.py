"""The processes of the broker, the memory and clock of its machine (from /proc), and the servers that it needs."""

import contextlib
import ctypes
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from rioni.cli.doctor.locating import PROC
from rioni.cli.doctor.model import NotLookedAt, Site, source
from rioni.config.settings import Config
from rioni.domain.access.addresses import host_and_port


# --- The processes of the broker and their limits, the port, memory and clock of its machine; all from /proc ---

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
    """Ask the kernel whether the clock is synchronised, without setting anything."""
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


# --- Checks whether the servers that the settings name accept connections from the broker's host ---

SERVERS_MAX = 16
CONNECT_S = 2.0
PORTS = {"postgresql": 5432, "http": 80, "https": 443}
"""Ports by scheme, for URLs that name none."""


class Server(msgspec.Struct, frozen=True):
    """A server that a setting names."""

    setting: str
    address: str
    error: str = ""
    """Why it can't be connected to."""


@source
def servers(site: Site, config: Config) -> list[Server]:
    """Connect to each of them, and disconnect at once."""
    found = []
    for setting, host, port in list(addresses(config))[:SERVERS_MAX]:
        if not site.deadline.left_s:
            break
        problem = ""
        try:
            socket.create_connection((host, port), timeout=CONNECT_S).close()
        except OSError as ex:
            problem = ex.strerror or str(ex)
        found.append(Server(setting, host_and_port(host, port), problem))
    if not found:
        raise NotLookedAt("the settings name no other servers", wanted=False)
    return found


def addresses(config: Config) -> Iterator[tuple[str, str, int]]:
    """Setting, host and port of each server; those whose address can't be read are left out."""
    for name in ("kafka", "zookeeper"):
        for each in (getattr(config, name) or "").partition("/")[0].split(","):
            host, _, port = each.strip().rpartition(":")
            if host and port.isdecimal():
                yield name, host.strip("[]"), int(port)
    for name in ("database", "auth_tokeninfo_local", "auth_tokeninfo_remote"):
        try:
            parts = urlsplit(getattr(config, name) or "")
            port = parts.port or PORTS.get(parts.scheme.partition("+")[0])
        except ValueError:
            continue
        # PostgreSQL's socket file has no host.
        if parts.hostname and port:
            yield name, parts.hostname, port
