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
from typing import IO, Annotated, Protocol

import msgspec

from rioni.domain.schemas import strict_json
from rioni.files.plain import flush, fsync_directory, write_durably
from rioni.storage.embedded.backup_files import BackupError, check_name, created, open_file, opened, read_small


BLOCK_BYTES = 2**18
"""Files are compared and written in blocks of this length."""

FORMAT = 1
"""The format of the manifest."""

MANIFEST = "backup.json"
MANIFEST_BYTES_MAX = 2**24
"""The maximum size of a manifest: enough for the files of some 100,000 storages."""
_UNFINISHED = "backup.unfinished"
_UNDO = "undo"
_HEADER = struct.Struct("<qq")


_Length = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Id = Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Za-z-]{1,64}\Z")]
_Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class FileEntry(msgspec.Struct, frozen=True):
    """A file of a backup."""

    size: _Length
    sha256: _Sha256


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a complete backup."""

    format: int = FORMAT
    id: _Id
    installation: _Id
    position: _Length
    """Last position of the internal log."""
    hash: _Sha256
    """Hash of the entry at this position, hexadecimal."""
    taken_at: Annotated[str, msgspec.Meta(pattern=r"\A[0-9T:.+Z-]{10,40}\Z")]
    rioni: Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Za-z.+-]{1,40}\Z")]
    """The version of Rioni that made the backup."""
    checked: bool
    files: dict[str, FileEntry]


class Undo(msgspec.Struct, frozen=True):
    """The record that leads back to the previous backup."""

    manifest_id: _Id
    sizes: dict[str, _Length | None]
    """The previous length of each file; None for files that did not exist."""


class BackupSource(Protocol):
    """A file to be copied, which does not change."""

    @property
    def path(self) -> Path:
        """The path of the file."""

    @property
    def size(self) -> int:
        """The length in bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """Read from it."""


Progress = Callable[[int, int], None]


def check_apart(folder: Path, data: Path) -> None:
    """Check that neither of a backup and a data directory is in the other one, or is the other one.

    Raises:
        BackupError: it is.
    """
    here, there = folder.resolve(), data.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise BackupError(f"{folder} and the data directory {data} contain one another. Name another folder.")


def read_manifest(folder: Path) -> BackupManifest | None:
    """Return the manifest of a backup; None if there is none.

    Raises:
        BackupError: it can't be read.
    """
    try:
        # A name that occurs twice would be another file for other readers.
        members = strict_json.decode(read_small(folder, MANIFEST, MANIFEST_BYTES_MAX))
        if isinstance(members, dict) and members.get("format", FORMAT) != FORMAT:
            raise BackupError(
                f"{folder / MANIFEST} has the format {ascii(members['format'])[:20]}, this version reads {FORMAT}. Use "
                "the version of Rioni that wrote it."
            )
        manifest = msgspec.convert(members, BackupManifest)
    except FileNotFoundError:
        return None
    except (OSError, strict_json.JsonError, msgspec.MsgspecError) as ex:
        raise BackupError(f"{folder / MANIFEST} can't be read: {ex}. Use another backup.") from ex
    for name in manifest.files:
        check_name(name, folder / MANIFEST)
    return manifest


def recover(folder: Path) -> None:
    """Return to the last complete backup after an interruption; can be interrupted itself.

    Raises:
        BackupError: the saved blocks are damaged or forged; nothing was changed.
        OSError: the folder can't be written.
    """
    undo = folder / _UNDO
    saved, manifest = _read_undo(folder), read_manifest(folder)
    if saved is not None and manifest is not None and saved.manifest_id == manifest.id:
        for name, size in saved.sizes.items():
            _check_saved(folder, name, size)
        for name, size in saved.sizes.items():
            _restore_file(folder, name, size)
        fsync_directory(folder)
    if undo.exists():
        (undo / MANIFEST).unlink(missing_ok=True)
        fsync_directory(undo)
        shutil.rmtree(undo)
    (folder / f"{MANIFEST}.new").unlink(missing_ok=True)


def _read_undo(folder: Path) -> Undo | None:
    undo = folder / _UNDO
    if undo.is_symlink():
        raise BackupError(f"{undo} is a symbolic link. Nothing was changed. Use another folder.")
    try:
        saved = msgspec.convert(strict_json.decode(read_small(undo, MANIFEST, MANIFEST_BYTES_MAX)), Undo)
    except FileNotFoundError:
        return None
    except (OSError, strict_json.JsonError, msgspec.MsgspecError) as ex:
        raise BackupError(f"{undo / MANIFEST} can't be read: {ex}. Use another backup.") from ex
    for name in saved.sizes:
        check_name(name, undo / MANIFEST)
    return saved


def is_interrupted(folder: Path) -> bool:
    """Whether an update of the backup was interrupted."""
    return (folder / _UNDO / MANIFEST).exists()


def is_usable(folder: Path) -> bool:
    """Whether a folder is empty, or holds a backup or the beginning of a first one."""
    names = {each.name for each in folder.iterdir()} - {"lost+found"}
    return not names or bool(names & {MANIFEST, _UNFINISHED})


def update(folder: Path, sources: Mapping[str, BackupSource], before: BackupManifest | None, progress: Progress) -> int:
    """Make the files of a folder equal to others; return the number of bytes written.

    Args:
        folder: the folder of the backup; `recover` was called.
        sources: by the name of the file.
        before: the manifest of the folder.
        progress: called with the number of bytes compared and their total.

    Raises:
        OSError: the disk is full or fails.
    """
    total, done = sum(each.size for each in sources.values()), 0
    changed: dict[str, list[int]] = {}
    if before is None:
        with created(folder, _UNFINISHED):
            fsync_directory(folder)
    else:
        (folder / _UNDO).mkdir(mode=0o700)
    for name, source in sources.items():
        changed[name] = []
        with contextlib.ExitStack() as files:
            saved = None
            if before is not None:
                saved = files.enter_context(created(folder / _UNDO, name))
            for offset, old in _differences(folder, name, source):
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
        written += _write(folder, name, source, changed[name])
        progress(total - sum(each.size for key, each in sources.items() if key > name) // 2, total)
    fsync_directory(folder)
    return written


def commit(folder: Path, manifest: BackupManifest) -> None:
    """Replace the manifest, and remove files that no longer belong to the backup."""
    write_durably(folder / MANIFEST, json.dumps(msgspec.to_builtins(manifest), indent=2).encode() + b"\n")
    recover(folder)
    (folder / _UNFINISHED).unlink(missing_ok=True)
    for path in folder.glob("*.db"):
        if path.name not in manifest.files:
            path.unlink()
    fsync_directory(folder)


def describe(path: Path) -> FileEntry:
    """Return length and SHA-256 of a file of a backup; blocks on the disk.

    Raises:
        BackupError: it is a link, a directory or a device.
    """
    digest, size = sha256(), 0
    with opened(path.parent, path.name) as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            size += len(block)
    return FileEntry(size, digest.hexdigest())


def _differences(folder: Path, name: str, source: BackupSource) -> Iterator[tuple[int, bytes]]:
    """Yield offset and present content of each block that differs, also of those after the new end."""
    with contextlib.ExitStack() as files:
        here = None
        with contextlib.suppress(FileNotFoundError):
            here = open_file(folder, name, os.O_RDWR)
            files.callback(os.close, here)
        length = 0 if here is None else os.fstat(here).st_size
        for offset in range(0, max(source.size, length), BLOCK_BYTES):
            old = b"" if here is None else os.pread(here, BLOCK_BYTES, offset)
            if here is None or old != source.read(offset, BLOCK_BYTES):
                yield offset, old


def _write(folder: Path, name: str, source: BackupSource, offsets: list[int]) -> int:
    written = 0
    fd = open_file(folder, name, os.O_RDWR | os.O_CREAT)
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


def _saved_blocks(file: IO[bytes], size: int) -> Iterator[tuple[int, bytes]]:
    """Yield offset and content of each saved block of a file that had this size.

    Raises:
        ValueError: it is damaged.
    """
    while header := file.read(_HEADER.size):
        offset, length = _HEADER.unpack(header) if len(header) == _HEADER.size else (-1, 0)
        if offset < 0 or not 0 < length <= BLOCK_BYTES or offset + length > size:
            raise ValueError
        if len(block := file.read(length)) != length:
            raise ValueError
        yield offset, block


def _check_saved(folder: Path, name: str, size: int | None) -> None:
    """Check that a file can be restored from its saved blocks; raises BackupError."""
    if size is None:
        return
    try:
        fd = open_file(folder, name, os.O_RDWR)
        length = os.fstat(fd).st_size
        os.close(fd)
        with opened(folder / _UNDO, name) as file:
            for offset, block in _saved_blocks(file, size):
                length = max(length, offset + len(block))
    except (FileNotFoundError, ValueError):
        length = -1
    if size > length:
        raise BackupError(f"{folder / _UNDO / name} is missing or damaged. Nothing was changed. Use another backup.")


def _restore_file(folder: Path, name: str, size: int | None) -> None:
    if size is None:
        (folder / name).unlink(missing_ok=True)
        return
    fd = open_file(folder, name, os.O_RDWR)
    try:
        with opened(folder / _UNDO, name) as file:
            for offset, block in _saved_blocks(file, size):
                _write_all(fd, block, offset)
        os.ftruncate(fd, size)
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, block: bytes, offset: int) -> None:
    while block:
        count = os.pwrite(fd, block, offset)
        block, offset = block[count:], offset + count
