"""Packs what was found into one file for those who help: without secrets, without events, of bounded size."""

import io
import os
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from rioni.cli.doctor.allowed import Allowed
from rioni.cli.doctor.facts.files import LogFile
from rioni.cli.doctor.facts.metrics import Metrics
from rioni.cli.doctor.model import Missing, Result
from rioni.domain.errors import Invalid


FILE_BYTES_MAX = 2_000_000
"""A longer file is cut: one of a log at its beginning, all others at their end."""
BUNDLE_BYTES_MAX = 20_000_000
"""Files that would exceed it are left out; the manifest names them."""
MANIFEST = "manifest.json"
_NEVER = frozenset({"config", "last_lines"})
"""Settings as they are; and what is in `logs`, too."""


def write_bundle(path: Path, results: Sequence[Result], facts: Mapping[str, Any], allowed: Allowed) -> list[str]:
    """Write a bundle, with a manifest of the SHA-256 of its files; return their names.

    Args:
        path: of the new file, which only its owner may read.
        results: of the checks.
        facts: by source.
        allowed: lets through what is known to be no secret.

    Raises:
        Invalid: the file exists already, or can't be written.
    """
    now = datetime.now(UTC)
    files, left_out = _bounded(_files(results, facts, allowed))
    manifest = {
        "created_at": now.isoformat(timespec="seconds"),
        "files": {name: {"bytes": len(data), "sha256": sha256(data).hexdigest()} for name, data in files.items()},
        "left_out": left_out,
    }
    files[MANIFEST] = _json(manifest)
    folder = f"rioni-doctor-{now:%Y%m%dT%H%M%SZ}"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as ex:
        raise Invalid(f"{path} exists already; name a new file for the bundle.") from ex
    except OSError as ex:
        raise Invalid(f"The bundle {path} can't be written: {ex.strerror}.") from ex
    try:
        with os.fdopen(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, data in files.items():
                member = tarfile.TarInfo(f"{folder}/{name}")
                member.size, member.mtime = len(data), int(time.time())
                archive.addfile(member, io.BytesIO(data))
    except OSError as ex:
        path.unlink()
        raise Invalid(f"The bundle {path} can't be written: {ex.strerror}.") from ex
    return list(files)


def _files(results: Sequence[Result], facts: Mapping[str, Any], allowed: Allowed) -> Iterator[tuple[str, bytes]]:
    """Names and contents, what matters most first."""
    lines = [msgspec.json.encode(allowed.value(msgspec.to_builtins(each))) for each in results]
    yield "results.jsonl", b"".join(line + b"\n" for line in lines)
    for name, each in facts.items():
        if name in _NEVER or isinstance(each, Missing | Metrics) or name == "logs":
            continue
        yield f"{name}.json", _json(allowed.value(msgspec.to_builtins(each), name))[:FILE_BYTES_MAX]
    metrics = facts.get("metrics")
    if isinstance(metrics, Metrics):
        yield "metrics.txt", allowed.metrics(metrics.text[:FILE_BYTES_MAX]).encode()
    logs = facts.get("logs")
    for number, log in enumerate(logs if isinstance(logs, list) else [], 1):
        if isinstance(log, LogFile):
            yield f"logs/{number}.log", allowed.log(log.text[-FILE_BYTES_MAX:]).encode()


def _bounded(files: Iterator[tuple[str, bytes]]) -> tuple[dict[str, bytes], list[str]]:
    kept: dict[str, bytes] = {}
    left_out, size = [], 0
    for name, data in files:
        if size + len(data) > BUNDLE_BYTES_MAX:
            left_out.append(name)
        else:
            kept[name] = data
            size += len(data)
    return kept, left_out


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
