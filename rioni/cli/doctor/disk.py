"""The data directory of a broker on this host, its disk and file system, the certificate's file, and log files."""

import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from cryptography import x509

from rioni.cli.doctor.connection import Certificate, described, expiry
from rioni.cli.doctor.diagnosis import ERROR, DoctorFinding, NotLookedAt, Site, check, error, listed, source, warning
from rioni.config.settings import Config


# --- Facts about files ---

FILES_MAX = 1_000
"""The most files of a data directory that are examined."""
LOG_BYTES_MAX = 1_000_000
"""The last part of a log file that is read."""
FSYNCS = 20
FSYNC_BYTES = 4_096
FSYNC_S = 3.0
FORMAT = "rioni data directory, format 1\n"
_ESCAPE = re.compile(r"\\([0-7]{3})")


class DataDirectoryFacts(msgspec.Struct, frozen=True):
    """The data directory of a broker."""

    path: str
    error: str = ""
    """The reason why it can't be examined."""
    mode: int = 0o700
    owner: int = 0
    """User id."""
    layout: str = FORMAT
    """The content of the file that names the format."""
    stores: list[str] = []
    """Databases of the broker that are there."""
    restoring: bool = False
    """Whether a restore was interrupted."""
    unknown: list[str] = []
    """Files of events whose last writes have an unknown outcome."""
    wal_bytes: dict[str, int] = {}
    """Sizes of the write-ahead logs."""
    foreign: list[str] = []
    """Files that belong to another user than the directory."""


class Disk(msgspec.Struct, frozen=True):
    """The disk of the data directory."""

    free_bytes: int
    total_bytes: int
    free_inodes: int
    total_inodes: int
    """The number of inodes; 0 if the file system has no limit."""


class FileSystem(msgspec.Struct, frozen=True):
    """The file system of the data directory."""

    kind: str
    mount_point: str
    options: list[str] = []


class LogFile(msgspec.Struct, frozen=True):
    """The end of a log file."""

    path: str
    text: str = ""
    """The last part of the file, from the beginning of a line on."""
    error: str = ""
    """Why it can't be read."""


@source
def data_directory(site: Site) -> DataDirectoryFacts:
    """Look at names, owners and sizes of files."""
    path = site.beside_the_broker().data
    try:
        status = path.stat()
        entries = [entry for entry, _ in zip(os.scandir(path), range(FILES_MAX), strict=False)]
        layout = path / "format"
        text = layout.read_text(errors="replace")[:200] if layout.exists() else ""
        stats = {entry.name: entry.stat(follow_symlinks=False) for entry in entries}
    except OSError as ex:
        return DataDirectoryFacts(str(path), error=ex.strerror or str(ex))
    return DataDirectoryFacts(
        str(path),
        mode=stat.S_IMODE(status.st_mode),
        owner=status.st_uid,
        layout=text,
        stores=sorted(name for name in stats if name.endswith(".db")),
        restoring="restore.json" in stats,
        unknown=sorted(name for name in stats if name.endswith("-unknown")),
        wal_bytes={name: each.st_size for name, each in sorted(stats.items()) if name.endswith("-wal")},
        foreign=sorted(name for name, each in stats.items() if each.st_uid != status.st_uid and name != "lost+found"),
    )


@source
def disk(site: Site) -> Disk:
    """Ask the file system for its free space."""
    found = os.statvfs(site.beside_the_broker().data)
    return Disk(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, found.f_favail, found.f_files)


@source
def file_system(site: Site) -> FileSystem:
    """Find the mount of the data directory."""
    path = site.beside_the_broker().data.resolve()
    return mount_of(path, Path("/proc/self/mountinfo").read_text())


def mount_of(path: Path, mounts: str) -> FileSystem:
    """The file system of a path, of what /proc/self/mountinfo has; raises NotLookedAt."""
    best: FileSystem | None = None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()[:1]
        if len(fields) <= 5 or not kind:  # noqa: PLR2004 - id, parent, device, root, mount point, options
            continue
        point = _ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[4])
        # If two file systems are mounted at the same place, the later one is seen.
        if path.is_relative_to(point) and (best is None or len(point) >= len(best.mount_point)):
            best = FileSystem(kind[0], point, fields[5].split(","))
    if best is None:
        raise NotLookedAt(f"no mount of {path} is known")
    return best


@source
def certificate_file(site: Site) -> Certificate:
    """Read the file with the certificate of the broker."""
    host = site.beside_the_broker()
    if host.config is None or host.config.tls_certificate is None:
        raise NotLookedAt("tls_certificate is not set", wanted=False)
    try:
        return described(x509.load_pem_x509_certificate(host.config.tls_certificate.read_bytes()), "")
    except ValueError as ex:
        raise NotLookedAt(f"{host.config.tls_certificate} holds no certificate in PEM: {ex}") from ex


@source
def fsyncs(site: Site) -> list[float]:
    """Milliseconds of writes to a temporary file without a name in the data directory."""
    if not site.scope.fsync:
        raise NotLookedAt("it is measured with --fsync only", wanted=False)
    times: list[float] = []
    began_s = time.monotonic()
    with tempfile.TemporaryFile(dir=site.beside_the_broker().data) as file:
        while len(times) < FSYNCS and time.monotonic() - began_s < FSYNC_S:
            before_s = time.perf_counter()
            file.write(bytes(FSYNC_BYTES))
            file.flush()
            os.fsync(file.fileno())
            times.append(1_000 * (time.perf_counter() - before_s))
    return times


@source
def logs(site: Site) -> list[LogFile]:
    """Read the end of each log file that was named."""
    if not site.scope.logs:
        raise NotLookedAt("no file with the broker's log was named: --log", wanted=False)
    return [end_of(path) for path in site.scope.logs]


@source
def last_lines(site: Site) -> list[LogFile]:
    """Read them, too; an empty list if none was named."""
    return [end_of(path) for path in site.scope.logs]


def end_of(path: Path) -> LogFile:
    """The last part of a file, without the line that it would cut; a file that can't be read has an error."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_BYTES_MAX))
            data = file.read(LOG_BYTES_MAX)
    except OSError as ex:
        return LogFile(str(path), error=ex.strerror or str(ex))
    if size > LOG_BYTES_MAX:
        data = data.partition(b"\n")[2]
    return LogFile(str(path), data.decode(errors="replace"))


# --- Checks of the data directory, its disk, and log files ---

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
WAL_BYTES = 256 * 2**20
"""SQLite starts it anew at some MB if no reader stays in its way."""
FSYNC_WARNING_MS = 20.0
NETWORK = frozenset(
    [
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
    ]
)
IN_MEMORY = frozenset({"ramfs", "tmpfs"})
OF_A_CONTAINER = frozenset({"aufs", "overlay"})
_ERROR_LINE = re.compile(r"\[(?:error|critical) *\]|\"level\": ?\"(?:error|critical)\"|^(?:ERROR\b|CRITICAL\b|Error:)")
_BACKUP = "docs/operating/backup.md"


@check(GROUP, ERROR)
def data(data_directory: DataDirectoryFacts) -> Iterator[DoctorFinding]:
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
def registry(data_directory: DataDirectoryFacts, config: Config) -> Iterator[DoctorFinding]:
    """Whether the data directory has the database of the registry, if it has others."""
    if config.database is None and data_directory.stores and REGISTRY not in data_directory.stores:
        yield error(
            f"{data_directory.path} has {listed(data_directory.stores)}, but no {REGISTRY}: no broker starts on it.",
            f"Restore a backup: {_BACKUP}#restoring",
        )


@check(GROUP)
def write_ahead_logs(data_directory: DataDirectoryFacts) -> Iterator[DoctorFinding]:
    """Whether write-ahead logs of SQLite grow."""
    for name, size in data_directory.wal_bytes.items():
        if size > WAL_BYTES:
            yield warning(
                f"{name} has {size / 2**20:,.0f} MiB.",
                "A reader that does not end keeps SQLite from starting it anew: a backup, a verification, or another "
                "program with the file open (`fuser FILE`).",
            )


@check(GROUP, ERROR)
def disk_space(disk: Disk) -> Iterator[DoctorFinding]:
    """Free space on the disk of the data directory."""
    free = f"{disk.free_bytes / 2**30:.2f} of {disk.total_bytes / 2**30:.2f} GiB are free for the data directory"
    advice = "Free space, shorten retention times, or move the data directory to a larger disk."
    if disk.free_bytes < DISK_FULL_BYTES:
        yield error(f"The disk is full: {free}.", advice)
    elif disk.free_bytes < DISK_LOW_BYTES or disk.free_bytes < LOW_RATIO * disk.total_bytes:
        yield warning(f"The disk is nearly full: {free}.", advice)


@check(GROUP, ERROR)
def inodes(disk: Disk) -> Iterator[DoctorFinding]:
    """Free inodes of the file system of the data directory."""
    if not disk.total_inodes:
        return
    text = f"{disk.free_inodes:,} of {disk.total_inodes:,} inodes are free for the data directory."
    if not disk.free_inodes:
        yield error(text, "Delete files of others on this file system.")
    elif disk.free_inodes < max(INODES_MIN, INODES_RATIO * disk.total_inodes):
        yield warning(text, "Delete files of others on this file system.")


@check(GROUP)
def file_system_kind(file_system: FileSystem) -> Iterator[DoctorFinding]:
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
def broker_certificate_file(certificate_file: Certificate) -> Iterator[DoctorFinding]:
    """When the certificate in the file of the setting tls_certificate expires."""
    yield from expiry(certificate_file, "The certificate in the file of tls_certificate")


@check(GROUP)
def disk_speed(fsyncs: list[float]) -> Iterator[DoctorFinding]:
    """How long the disk takes to make a write durable; measured with `--fsync`."""
    times = sorted(fsyncs)
    if times and (median := times[len(times) // 2]) > FSYNC_WARNING_MS:
        yield warning(
            f"A durable write to the data directory takes {median:.0f} ms (median of {len(times)}, at most "
            f"{times[-1]:.0f} ms), and every publish request waits for one.",
            "Use a disk with a lower latency, such as a local SSD.",
        )


@check(GROUP)
def log_errors(logs: list[LogFile]) -> Iterator[DoctorFinding]:
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
