"""Finds the broker on this host: the process that has locked a data directory, and the settings that it runs with.

Nothing is locked or opened for writing: /proc shows which process holds the lock.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rioni.cli.doctor.model import Host
from rioni.config.loading import FILE, FILE_VARIABLE, Loaded, load
from rioni.config.settings import SETTINGS, Config, ConfigError


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
    locks = _read(PROC / "locks")
    if locks is None:
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


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
