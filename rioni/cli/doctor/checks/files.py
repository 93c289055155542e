"""The data directory, its disk and file system, the certificate's file, and log files."""

import os
import re
import stat
import tempfile
import time
from pathlib import Path

import msgspec
from cryptography import x509

from rioni.cli.doctor.checks.connection import Certificate, described
from rioni.cli.doctor.model import NotLookedAt, Site, source


FILES_MAX = 1_000
"""The most files of a data directory that are examined."""
LOG_BYTES_MAX = 1_000_000
"""The last part of a log file that is read."""
FSYNCS = 20
FSYNC_BYTES = 4_096
FSYNC_S = 3.0
FORMAT = "rioni data directory, format 1\n"
_ESCAPE = re.compile(r"\\([0-7]{3})")


class DataDirectory(msgspec.Struct, frozen=True):
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


class Fsyncs(msgspec.Struct, frozen=True):
    """How long writing to the disk takes."""

    milliseconds: list[float]


class LogFile(msgspec.Struct, frozen=True):
    """The end of a log file."""

    path: str
    text: str = ""
    """The last part of the file, from the beginning of a line on."""
    error: str = ""
    """Why it can't be read."""


@source
def data_directory(site: Site) -> DataDirectory:
    """Look at names, owners and sizes of files."""
    path = site.beside_the_broker().data
    try:
        status = path.stat()
        entries = [entry for entry, _ in zip(os.scandir(path), range(FILES_MAX), strict=False)]
        layout = path / "format"
        text = layout.read_text(errors="replace")[:200] if layout.exists() else ""
        stats = {entry.name: entry.stat(follow_symlinks=False) for entry in entries}
    except OSError as ex:
        return DataDirectory(str(path), error=ex.strerror or str(ex))
    return DataDirectory(
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
def fsyncs(site: Site) -> Fsyncs:
    """Write to a temporary file without a name in the data directory."""
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
    return Fsyncs(times)


@source
def logs(site: Site) -> list[LogFile]:
    """Read the end of each log file that was named."""
    if not site.scope.logs:
        raise NotLookedAt("no file with the broker's log was named: --log", wanted=False)
    return [end_of(path) for path in site.scope.logs]


@source
def last_lines(site: Site) -> list[LogFile]:
    """Read the end of each log file that was named; an empty list if none was."""
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
