"""The report of `rioni doctor` for people, and the bundle for those who help."""

import io
import os
import sys
import tarfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from rioni.cli.doctor.diagnosis import DoctorCheck, Missing, Result
from rioni.cli.doctor.metrics import SampledSeries
from rioni.cli.doctor.shown import FACTS
from rioni.cli.terminal.output import console_on
from rioni.domain.errors import Invalid
from rioni.domain.texts import visible


# --- Checks without findings in a line, findings with advice, skipped checks ---

FINDINGS_SHOWN = 5
"""The most findings of one check that are shown; `--json` has all."""
COLUMNS = {"check": "check", "group": "group", "at worst": "severity", "looks at": "looks_at"}
NAMES_SHOWN = 5
"""The most checks that are named for one reason to skip them; `--verbose` names all."""
STYLES = {"error": "bold red", "warning": "yellow", "ok": "green", "skipped": "dim"}

Line = Callable[..., None]


def write(results: Sequence[Result], subject: str, *, verbose: bool) -> None:
    """Write the results.

    Args:
        results: of all checks, by group.
        subject: of the checks, in words.
        verbose: whether to show each check.
    """
    console = console_on(sys.stdout)

    def line(text: str = "", style: str = "") -> None:
        console.print(visible(text), style=style, soft_wrap=True)

    line(subject)
    for group, members in groupby(results, key=lambda each: each.group):
        _write_group(group, list(members), line, verbose=verbose)
    if not verbose:
        _write_skipped(results, line)
    counts = Counter(each.status for each in results)
    line()
    line(
        f"{counts['error']} with errors, {counts['warning']} with warnings, {counts['ok']} in order, "
        f"{counts['skipped']} not looked at."
    )


def _write_group(group: str, results: Sequence[Result], line: Line, *, verbose: bool) -> None:
    shown = [each for each in results if verbose or each.findings]
    fine = [each.check for each in results if each.status == "ok" and not verbose]
    if not shown and not fine:
        return
    line()
    in_order = f"  ok: {', '.join(fine)}" if fine else ""
    line(group + in_order, "bold" if shown else "")
    for each in shown:
        about = "; ".join(filter(None, (each.looks_at.removesuffix(".") if verbose else "", each.reason, each.note)))
        line(f"  {each.status:8} {each.check}{f' ({about})' if about else ''}", STYLES[each.status])
        for finding in each.findings if verbose else each.findings[:FINDINGS_SHOWN]:
            line(f"           {finding.text}")
            line(f"           -> {finding.advice}")
        if not verbose and (more := len(each.findings) - FINDINGS_SHOWN) > 0:
            line(f"           and {more} more, which --verbose shows")


def _write_skipped(results: Sequence[Result], line: Line) -> None:
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for each in results:
        if each.status == "skipped" and each.wanted:
            reasons[each.reason].append(each.check)
    if reasons:
        line()
        line("Not looked at")
    for reason, checks in reasons.items():
        names = ", ".join(checks) if len(checks) <= NAMES_SHOWN else f"{len(checks)} checks"
        line(f"  {names}: {reason}")


def described(check: DoctorCheck) -> Mapping[str, Any]:
    """A check for `--list`."""
    return {"check": check.name, "group": check.group, "severity": check.severity, "looks_at": check.looks_at}


# --- Packs what was found into one file: only facts that may be shown, no events, of bounded size ---

FILE_BYTES_MAX = 2_000_000
"""A longer file is cut: one of a log at its beginning, all others at their end."""
BUNDLE_BYTES_MAX = 20_000_000
"""Files that would exceed it are left out; the manifest names them."""
MANIFEST = "manifest.json"


def write_bundle(path: Path, results: Sequence[Result], facts: Mapping[str, Any]) -> list[str]:
    """Write a bundle, with a manifest of the SHA-256 of its files; return their names.

    Args:
        path: of the new file, which only its owner may read.
        results: of the checks.
        facts: by source, reduced to what may be shown.

    Raises:
        Invalid: the file exists already, or can't be written.
    """
    now = datetime.now(UTC)
    files, left_out = _bounded(_files(results, facts))
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


def _files(results: Sequence[Result], facts: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Names and contents, what matters most first."""
    yield "results.jsonl", b"".join(msgspec.json.encode(each) + b"\n" for each in results)
    known = {name: each for name, each in facts.items() if name in FACTS and not isinstance(each, Missing)}
    # The lines of the second are those of the first.
    logs, _ = known.pop("logs", []), known.pop("last_lines", None)
    metrics = known.pop("metrics", None)
    for name, each in known.items():
        yield f"{name}.json", _json(each)[:FILE_BYTES_MAX]
    if metrics is not None:
        text = _as_text(metrics.series)[:FILE_BYTES_MAX]
        yield "metrics.txt", text[: text.rfind(b"\n") + 1]
    for number, log in enumerate(logs, 1):
        yield f"logs/{number}.log", log.text.encode()[-FILE_BYTES_MAX:]


def _as_text(series: Iterable[SampledSeries]) -> bytes:
    """Prometheus' text format, without types."""
    lines = []
    for each in series:
        labels = ",".join(f'{name}="{value}"' for name, value in each.labels.items())
        lines.append(f"{each.name}{f'{{{labels}}}' if labels else ''} {each.value}\n")
    return "".join(lines).encode()


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
