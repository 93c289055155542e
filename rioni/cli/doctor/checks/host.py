"""Checks of the broker's host: process, port, data directory, disk, limits, memory, clock, log files."""

import re
from collections.abc import Iterator

from rioni.cli.doctor.checks.administration import listed
from rioni.cli.doctor.checks.connection import Certificate, Reach, expiry
from rioni.cli.doctor.checks.files import FORMAT, DataDirectory, Disk, FileSystem, Fsyncs, LogFile
from rioni.cli.doctor.checks.machine import ClockSync, Memory, Port, Processes
from rioni.cli.doctor.model import ERROR, Finding, check, error, warning
from rioni.config.settings import Config


GROUP = "Host"
REGISTRY = "registry.db"
LINES_SHOWN = 3
LINE_CHARACTERS_MAX = 300
DISK_FULL_BYTES = 16 * 2**20
DISK_LOW_BYTES = 2**30
"""The limits of free space that `/readyz` has, too."""
LOW_RATIO = 0.1
INODES_MIN = 1_000
INODES_RATIO = 0.05
OPEN_FILES_MIN = 4_096
"""Each connection is an open file; a worker serves 10,000."""
OPEN_FILES_RATIO = 0.8
SWAPPED_BYTES = 100 * 2**20
WAL_BYTES = 256 * 2**20
"""SQLite starts it anew at some MB if no reader stays in its way."""
FSYNC_WARNING_MS = 20.0
NETWORK = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "glusterfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
    }
)
IN_MEMORY = frozenset({"ramfs", "tmpfs"})
OF_A_CONTAINER = frozenset({"aufs", "overlay"})
_ERROR_LINE = re.compile(r"\[(?:error|critical) *\]|\"level\": ?\"(?:error|critical)\"|^(?:ERROR\b|CRITICAL\b|Error:)")
_BACKUP = "docs/operating/backup.md"


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
def data(data_directory: DataDirectory) -> Iterator[Finding]:
    """Whether the data directory is one, complete, of one owner, and closed to other users."""
    found, path = data_directory, data_directory.path
    if found.error:
        yield error(
            f"The data directory {path} can't be looked at: {found.error}.",
            "Name the right one with --data; run this command as the user of the broker.",
        )
        return
    if found.restoring:
        yield error(
            f"Restoring a backup into {path} was interrupted; no broker starts on it.",
            f"Run `rioni restore` with the same backup again: {_BACKUP}#restoring",
        )
    if found.layout != FORMAT:
        what = f"has the format {found.layout.strip()[:80]!r}" if found.layout else "is not a data directory of Rioni"
        yield error(f"{path} {what}.", "Name the right directory, or use the release that wrote it.")
    if found.unknown:
        yield warning(
            f"The outcome of the last writes is unknown in {listed(found.unknown)}: the disk failed.",
            f"Look at the disk; the next start finds out: {_BACKUP}#disk-failures",
        )
    if found.foreign:
        yield error(
            f"{listed(found.foreign)} in {path} belong to another user than the directory.",
            f"A command was run as another user, such as root: chown --reference={path} {path}/*",
        )
    if found.mode & 0o077:
        yield warning(f"Other users may look into {path} ({found.mode:04o}).", f"chmod 700 {path}")


@check(GROUP, ERROR)
def registry(data_directory: DataDirectory, config: Config) -> Iterator[Finding]:
    """Whether the data directory has the database of the registry, if it has others."""
    if config.database is None and data_directory.stores and REGISTRY not in data_directory.stores:
        yield error(
            f"{data_directory.path} has {listed(data_directory.stores)}, but no {REGISTRY}: no broker starts on it.",
            f"Restore a backup: {_BACKUP}#restoring",
        )


@check(GROUP)
def write_ahead_logs(data_directory: DataDirectory) -> Iterator[Finding]:
    """Whether write-ahead logs of SQLite grow."""
    for name, size in data_directory.wal_bytes.items():
        if size > WAL_BYTES:
            yield warning(
                f"{name} has {size / 2**20:,.0f} MiB.",
                "A reader that does not end keeps SQLite from starting it anew: a backup, a verification, or another "
                "program with the file open (`fuser FILE`).",
            )


@check(GROUP, ERROR)
def disk_space(disk: Disk) -> Iterator[Finding]:
    """Free space on the disk of the data directory."""
    free = f"{disk.free_bytes / 2**30:.2f} of {disk.total_bytes / 2**30:.2f} GiB are free for the data directory"
    advice = "Free space, shorten retention times, or move the data directory to a larger disk."
    if disk.free_bytes < DISK_FULL_BYTES:
        yield error(f"The disk is full: {free}.", advice)
    elif disk.free_bytes < DISK_LOW_BYTES or disk.free_bytes < LOW_RATIO * disk.total_bytes:
        yield warning(f"The disk is nearly full: {free}.", advice)


@check(GROUP, ERROR)
def inodes(disk: Disk) -> Iterator[Finding]:
    """Free inodes of the file system of the data directory."""
    if not disk.total_inodes:
        return
    text = f"{disk.free_inodes:,} of {disk.total_inodes:,} inodes are free for the data directory."
    if not disk.free_inodes:
        yield error(text, "Delete files of others on this file system.")
    elif disk.free_inodes < max(INODES_MIN, INODES_RATIO * disk.total_inodes):
        yield warning(text, "Delete files of others on this file system.")


@check(GROUP)
def file_system_kind(file_system: FileSystem) -> Iterator[Finding]:
    """Whether the file system of the data directory keeps the data that are written, and has locks."""
    where = f"The data directory is on {file_system.kind} ({file_system.mount_point})"
    if file_system.kind in NETWORK:
        yield warning(
            f"{where}, a network file system, whose locks and fsync SQLite can't rely on.",
            "Use a local disk, or a cluster: docs/operating/cluster.md",
        )
    elif file_system.kind in IN_MEMORY:
        yield warning(f"{where}, in memory: everything is lost when the machine ends.", "Use a disk.")
    elif file_system.kind in OF_A_CONTAINER:
        yield warning(
            f"{where}, a layer of a container that is deleted with it.", "Mount a volume for the data directory."
        )
    if "ro" in file_system.options:
        yield warning(f"{where}, which is mounted read-only.", "Look at the log of the kernel for errors of the disk.")


@check(GROUP, ERROR)
def broker_certificate_file(certificate_file: Certificate) -> Iterator[Finding]:
    """When the certificate in the file of the setting tls_certificate expires."""
    yield from expiry(certificate_file, "The certificate in the file of tls_certificate")


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


@check(GROUP)
def disk_speed(fsyncs: Fsyncs) -> Iterator[Finding]:
    """How long the disk takes to make a write durable; measured with `--fsync`."""
    times = sorted(fsyncs.milliseconds)
    if times and (median := times[len(times) // 2]) > FSYNC_WARNING_MS:
        yield warning(
            f"A durable write to the data directory takes {median:.0f} ms (median of {len(times)}, at most "
            f"{times[-1]:.0f} ms), and every publish request waits for one.",
            "Use a disk with a lower latency, such as a local SSD.",
        )


@check(GROUP)
def log_errors(logs: list[LogFile]) -> Iterator[Finding]:
    """Errors in the last part of the log files that `--log` names."""
    for each in logs:
        if each.error:
            yield warning(
                f"{each.path} can't be read: {each.error}.", "Name the file that the broker's log is written to."
            )
        lines = [line for line in each.text.splitlines() if _ERROR_LINE.search(line)]
        if lines:
            last = " | ".join(line[:LINE_CHARACTERS_MAX] for line in lines[-LINES_SHOWN:])
            yield warning(f"{each.path} has {len(lines):,} lines with errors, the last ones: {last}", "See the file.")


@check(GROUP, ERROR)
def unreachable_here(reach: Reach, processes: Processes) -> Iterator[Finding]:
    """Whether a broker that runs on this host answers."""
    if reach.error and processes.items:
        yield error(
            f"The broker of {processes.data} runs (process {processes.items[0].pid}), but {reach.url} does not answer.",
            "Compare the URL with the address in its log (`serves http`); if they are the same it hangs: "
            "docs/operating/monitoring.md#threads-that-hang",
        )
