"""A folder with a backup: files that are replaced all at once, and a manifest that describes them.

An update first saves the blocks that it will overwrite in the folder `undo`, then writes, and replaces the manifest at
the end. Until then the saved blocks lead back to the backup before; so at every instant one of both is complete.
"""

import contextlib
import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import IO, Protocol

import msgspec

from rioni.domain.errors import RioniError
from rioni.storage.embedded.data_directory import fsync_directory


BLOCK_BYTES = 2**18
"""Files are compared and written in blocks of this length."""

MANIFEST = "backup.json"
_UNFINISHED = "backup.unfinished"
_UNDO = "undo"
_HEADER = struct.Struct("<qq")


class BackupError(RioniError):
    """A backup can't be made or used; the text says why, and what to do."""


class FileEntry(msgspec.Struct, frozen=True):
    """A file of a backup."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a complete backup."""

    format: int = 1
    id: str
    installation: str
    position: int
    """Last position of the internal log."""
    hash: str
    """Hash of the entry at this position, hexadecimal."""
    taken_at: str
    rioni: str
    """The version of Rioni that made the backup."""
    checked: bool
    files: dict[str, FileEntry]


class Undo(msgspec.Struct, frozen=True):
    """What leads back to the backup before."""

    manifest_id: str
    sizes: dict[str, int | None]
    """For each file its length before; None for files that did not exist."""


class Source(Protocol):
    """A file to be copied, which does not change."""

    @property
    def path(self) -> Path:
        """Where it is."""

    @property
    def size(self) -> int:
        """Its length in bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """Read from it."""


Progress = Callable[[int, int], None]


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a backup; None if there is none.

    Raises:
        BackupError: it can't be read.
    """
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as ex:
        raise BackupError(f"{folder / MANIFEST} can't be read: {ex}. Use another backup.") from ex


def recover(folder: Path) -> None:
    """Return to the last complete backup after an interruption; can be interrupted itself.

    Raises:
        OSError: the folder can't be written.
    """
    undo = folder / _UNDO
    try:
        saved = msgspec.json.decode((undo / MANIFEST).read_bytes(), type=Undo)
    except FileNotFoundError:
        saved = None
    manifest = read_manifest(folder)
    if saved is not None and manifest is not None and saved.manifest_id == manifest.id:
        for name, size in saved.sizes.items():
            _restore_file(folder / name, undo / name, size)
        fsync_directory(folder)
    if undo.exists():
        (undo / MANIFEST).unlink(missing_ok=True)
        fsync_directory(undo)
        shutil.rmtree(undo)
    (folder / f"{MANIFEST}.new").unlink(missing_ok=True)


def is_interrupted(folder: Path) -> bool:
    """Whether an update of the backup was interrupted."""
    return (folder / _UNDO / MANIFEST).exists()


def is_usable(folder: Path) -> bool:
    """Whether a folder is empty, or holds a backup or the beginning of a first one."""
    names = {each.name for each in folder.iterdir()} - {"lost+found"}
    return not names or bool(names & {MANIFEST, _UNFINISHED})


def update(folder: Path, sources: Mapping[str, Source], before: Manifest | None, progress: Progress) -> int:
    """Make the files of a folder equal to others; return the number of bytes written.

    Args:
        folder: of the backup; `recover` was called.
        sources: by the name of the file.
        before: the manifest of the folder.
        progress: called with the number of bytes compared and their total.

    Raises:
        OSError: the disk is full or fails.
    """
    total, done = sum(each.size for each in sources.values()), 0
    changed: dict[str, list[int]] = {}
    if before is None:
        (folder / _UNFINISHED).touch()
        fsync_directory(folder)
    else:
        (folder / _UNDO).mkdir()
    for name, source in sources.items():
        changed[name] = []
        with contextlib.ExitStack() as opened:
            saved = None
            if before is not None:
                saved = opened.enter_context((folder / _UNDO / name).open("wb"))
            for offset, old in _differences(folder / name, source):
                changed[name].append(offset)
                if saved is not None and old:
                    saved.write(_HEADER.pack(offset, len(old)) + old)
            if saved is not None:
                flush(saved)
        done += source.size
        progress(done // 2, total)
    if before is not None:
        sizes = {name: (folder / name).stat().st_size if (folder / name).exists() else None for name in sources}
        fsync_directory(folder / _UNDO)
        write_durably(folder / _UNDO / MANIFEST, msgspec.json.encode(Undo(before.id, sizes)))
    written = 0
    for name, source in sources.items():
        written += _write(folder / name, source, changed[name])
        progress(total - sum(each.size for key, each in sources.items() if key > name) // 2, total)
    fsync_directory(folder)
    return written


def commit(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest, and remove what no longer belongs to the backup."""
    write_durably(folder / MANIFEST, json.dumps(msgspec.to_builtins(manifest), indent=2).encode() + b"\n")
    recover(folder)
    (folder / _UNFINISHED).unlink(missing_ok=True)
    for path in folder.glob("*.db"):
        if path.name not in manifest.files:
            path.unlink()
    fsync_directory(folder)


def describe(path: Path) -> FileEntry:
    """Return length and SHA-256 of a file; blocks on the disk."""
    digest, size = sha256(), 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            size += len(block)
    return FileEntry(size, digest.hexdigest())


def _differences(path: Path, source: Source) -> Iterator[tuple[int, bytes]]:
    """Yield offset and present content of each block that differs, also of those behind the new end."""
    with contextlib.ExitStack() as opened:
        here = opened.enter_context(path.open("rb")) if path.exists() else None
        length = os.fstat(here.fileno()).st_size if here else 0
        for offset in range(0, max(source.size, length), BLOCK_BYTES):
            old = os.pread(here.fileno(), BLOCK_BYTES, offset) if here else b""
            if not here or old != source.read(offset, BLOCK_BYTES):
                yield offset, old


def _write(path: Path, source: Source, offsets: list[int]) -> int:
    written = 0
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for offset in offsets:
            if block := source.read(offset, BLOCK_BYTES):
                _write_all(fd, block, offset)
                written += len(block)
        os.ftruncate(fd, source.size)
        os.fsync(fd)
    finally:
        os.close(fd)
    return written


def _restore_file(path: Path, saved: Path, size: int | None) -> None:
    if size is None:
        path.unlink(missing_ok=True)
        return
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        with saved.open("rb") as file:
            while header := file.read(_HEADER.size):
                offset, length = _HEADER.unpack(header)
                _write_all(fd, file.read(length), offset)
        os.ftruncate(fd, size)
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, block: bytes, offset: int) -> None:
    while block:
        count = os.pwrite(fd, block, offset)
        block, offset = block[count:], offset + count


def write_durably(path: Path, content: bytes) -> None:
    """Write a file that exists completely or not at all, whatever happens."""
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(content)
        flush(file)
    new.replace(path)
    fsync_directory(path.parent)


def flush(file: IO[bytes]) -> None:
    """Make what was written to a file durable; blocks on the disk."""
    file.flush()
    os.fsync(file.fileno())
