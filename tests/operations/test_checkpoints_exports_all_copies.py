"""All ways to copy the audit trail have the entries of the log, by count and content, around every page and batch."""

import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from sqlalchemy import Connection, select

from rioni.client import Client
from rioni.commands.system.storages import SwitchFeature
from rioni.config.settings import Config
from rioni.domain.events import Origin, stream_id
from rioni.domain.ports.event_log import LogEntry
from rioni.domain.ports.host import Clock
from rioni.domain.system.settings import FeatureSwitched
from rioni.domain.timestamps import rfc3339
from rioni.installation.database import reading_models
from rioni.installation.infrastructure import Infrastructure, build_infrastructure
from rioni.installation.opened import opened
from rioni.operations import history as history_operations
from rioni.operations.checkpoints import export
from rioni.operations.verification import remarks
from rioni.projections.queries import audit_log
from rioni.projections.queries.audit_log import AuditFilter, AuditQuery, PageStart
from rioni.server.log_tree import TileBuilder, build_checkpoint_signer
from rioni.server.startup import prepare_startup
from rioni.sql.log_tables import LOG
from rioni.storage.clock import SystemClock
from rioni.storage.log.verification import setbacks
from rioni.storage.sql.engines import reading, writing
from tests.support.clock import ManualClock
from tests.support.log import append
from tests.support.rfc9162 import split_bundle
from tests.support.server import running_server
from tests.support.waiting import WAIT_S


SIZES = (63, 64, 65, 128, 129, 255, 256, 257, 500, 501, 999, 1_000, 1_001, 5_001, 10_000)
START_MS = 2_000_000_000_000
DAY_MS = 86_400_000
STREAM = stream_id("settings", "settings")
ACTORS = ("jane", "bob", "jane", "zoë")
PAGES = (1, 63, 64, 65, 1_000)


def entry(position: int, version: int) -> LogEntry:
    """An entry each 10 ms, three of a time."""
    origin = Origin(
        actor=ACTORS[position % len(ACTORS)],
        client="127.0.0.1 tests",
        flow_id=f"flow-{position}",
        command_id="",
        recorded_at=rfc3339(START_MS + position // 3 * 30),
    )
    event = FeatureSwitched(feature="kpi_collection", enabled=version % 2 == 0)
    return LogEntry(position=position, stream=STREAM, version=version, event=event, origin=origin)


def grow(base: Infrastructure, size: int) -> None:
    with writing(base.log.engine) as connection:
        versions = select(LOG.c.version).where(LOG.c.stream == str(STREAM)).order_by(LOG.c.version.desc()).limit(1)
        version, head = connection.scalar(versions) or 0, base.log.head().position
        numbers = zip(range(head + 1, size + 1), itertools.count(version + 1), strict=False)
        append(connection, (entry(*each) for each in numbers))
    TileBuilder(base).build(size)


@contextlib.contextmanager
def a_log(data: Path, clock: Clock | None = None) -> Iterator[tuple[Config, Infrastructure]]:
    config, clock = Config(data=data), clock or SystemClock()
    with (
        prepare_startup(config) as directory,
        contextlib.closing(build_infrastructure(config, directory, clock=clock)) as base,
    ):
        build_checkpoint_signer(base).verifier()
        yield config, base


def truth(base: Infrastructure) -> list[tuple[int, str, str]]:
    """Position, actor and flow id of all entries of the log."""
    with reading(base.log.engine) as connection:
        rows = connection.execute(select(LOG.c.position, LOG.c.actor, LOG.c.flow_id).order_by(LOG.c.position))
        return [tuple(row) for row in rows]


def brief(entries: Any) -> list[tuple[int, str, str]]:
    return [(each["position"], each["actor"], each["flow_id"]) for each in entries]


def exported(config: Config, folder: Path, wanted: AuditFilter) -> list[tuple[int, str, str]]:
    """The entries of an export, which its own program has verified."""
    report = export(config, folder, wanted, lambda *_: None)
    lines = [json.loads(line) for line in (folder / "entries.jsonl").read_bytes().splitlines()]
    assert report.entries == len(lines) == json.loads((folder / "manifest.json").read_bytes())["entries"]
    command = [sys.executable, "-I", "-S", str(folder / "verify_export.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return brief(lines)


def by_pages(connection: Connection, limit: int, *, ascending: bool, **wanted: str) -> list[tuple[int, str, str]]:
    place: PageStart | None = PageStart(ascending)
    found: list[Any] = []
    while place is not None:
        page = audit_log.page(connection, AuditQuery(**wanted), place, limit)
        found += page.rows
        place = None if page.next is None else PageStart(ascending, after=page.next)
    return brief(found if ascending else found[::-1])


def test_exports_and_pages_are_complete_at_every_size(tmp_path):
    with a_log(tmp_path / "data") as (config, base):
        for size in SIZES:
            grow(base, size)
            everything = truth(base)
            assert [position for position, *_ in everything] == list(range(1, size + 1))
            of_jane = [each for each in everything if each[1] == "jane"]
            assert exported(config, tmp_path / f"all-{size}", AuditFilter()) == everything
            if size in {65, 257, 1_001}:
                assert exported(config, tmp_path / f"some-{size}", AuditFilter(actor="jane")) == of_jane
            assert brief(history_operations.audit(config)) == everything
            assert brief(history_operations.audit(config, AuditFilter(actor="jane"))) == of_jane
            with reading_models(base.log.engine) as connection:
                for limit in PAGES if size == 65 else PAGES[-1:] if size > 1_001 else PAGES[1:]:
                    for ascending in (True, False):
                        assert by_pages(connection, limit, ascending=ascending) == everything, (size, limit)
                    assert by_pages(connection, limit, ascending=True, actor="jane") == of_jane, (size, limit)


def times(size: int) -> Sequence[str]:
    """Times before, at, between and after the entries."""
    chosen = {START_MS - 1, START_MS + size // 3 * 30 + 1}
    for position in (1, 2, 63, 64, 65, size // 2, size - 1, size):
        chosen |= {START_MS + position // 3 * 30 + shift for shift in (-1, 0, 1)}
    return [rfc3339(each) for each in sorted(chosen)]


def test_all_queries_by_time_agree(tmp_path):
    size = 501
    with a_log(tmp_path / "data") as (config, base):
        grow(base, size)
        check_times(config, base, tmp_path, times(size))


@pytest.mark.parametrize("steps_ms", [(-DAY_MS,), (-1,), (-3_600_001, 5, -DAY_MS), (DAY_MS, -DAY_MS), (-400 * DAY_MS,)])
def test_times_do_not_go_back_with_the_clock_so_that_all_queries_by_time_agree(tmp_path, steps_ms):
    """Each step of the clock is seen by a broker that starts anew."""
    clock = ManualClock(START_MS)
    for number, step_ms in enumerate((0, *steps_ms)):
        clock.advance(step_ms)
        with a_log(tmp_path / "data", clock) as (config, base):
            for enabled in (True, False, True, False):
                clock.advance(1_000)
                command = SwitchFeature(feature="kpi_collection", enabled=enabled)
                base.bus.dispatch(command, base.system_context())
            with reading(base.log.engine) as connection:
                recorded = connection.scalars(select(LOG.c.recorded_at).order_by(LOG.c.position)).all()
            assert recorded == sorted(recorded)
            assert setbacks(base.log.engine) == []
            moments = sorted({*recorded, rfc3339(START_MS - 1), rfc3339(START_MS + 500), rfc3339(clock.now_ms())})
            (tmp_path / str(number)).mkdir()
            check_times(config, base, tmp_path / str(number), moments)


def test_verify_names_entries_of_earlier_releases_whose_times_went_back(tmp_path):
    with a_log(tmp_path / "data") as (config, base):
        grow(base, 9)
        with writing(base.log.engine) as connection:
            append(connection, [later(entry(10, 8), -DAY_MS), later(entry(11, 9), 0), later(entry(12, 10), -1)])
        with opened(config) as installation:
            found = [*remarks(installation)]
    assert [text.partition(":")[0] for text in found if "the clock had been set back" in text] == [
        "log, position 10",
        "log, position 12",
    ]


def later(entry: LogEntry, ms: int) -> LogEntry:
    origin = msgspec.structs.replace(entry.origin, recorded_at=rfc3339(START_MS + DAY_MS + ms))
    return msgspec.structs.replace(entry, origin=origin)


def check_times(config: Config, base: Infrastructure, folder: Path, moments: Sequence[str]) -> None:
    with reading(base.log.engine) as connection:
        recorded = {row.position: row.recorded_at for row in connection.execute(select(LOG))}
    everything = truth(base)
    for number, (since, until) in enumerate(itertools.pairwise([moments[0], *moments, moments[-1]])):
        expected = [each for each in everything if since <= recorded[each[0]] < until]
        assert brief(history_operations.audit(config, AuditFilter(since=since, until=until))) == expected
        with reading_models(base.log.engine) as connection:
            assert by_pages(connection, 64, ascending=True, since=since, until=until) == expected
        if number % 5 == 0:
            target = folder / f"by-time-{number}"
            assert exported(config, target, AuditFilter(since=since, until=until)) == expected
        last = max((position for position, at in recorded.items() if at <= until), default=0)
        if last:
            with reading_models(base.log.engine) as connection:
                assert audit_log.resolved(connection, until)[0] == last


def test_what_is_read_over_http_is_the_log_at_every_size(tmp_path):
    size = 1_001
    with a_log(tmp_path / "data") as (_, base):
        grow(base, size)
        everything = truth(base)
    with running_server(tmp_path / "data") as server, Client(server.url) as client:
        fields = [framed_fields(leaf) for leaf in leaves(server.url)]
        assert [(int(each[0]), each[5].decode(), each[7].decode()) for each in fields][:size] == everything
        for limit in (1, 63, 64, 65, 100, 101, 999, 1_000, 1_001, 5_000):
            found = client.audit.entries(order="asc", limit=limit)
            assert [(each.position, each.actor, each.flow_id) for each in found][:size] == everything[:limit], limit
        for limit in (64, 65, 250, 257, 1_000):
            assert brief(pages(server.url, limit))[:size] == everything, limit
        with httpx.Client(base_url=server.url, timeout=WAIT_S, verify=False) as plain:
            lines = plain.get("/audit?order=asc", headers={"Accept": "application/x-ndjson"}).text.splitlines()
        assert brief(map(json.loads, lines))[:size] == everything


def pages(url: str, limit: int) -> Iterator[Any]:
    """The entries of all pages, oldest first."""
    path = f"/audit?order=asc&limit={limit}"
    with httpx.Client(base_url=url, timeout=WAIT_S, verify=False) as client:
        while path:
            page = client.get(path).json()
            yield from page["items"]
            path = page["_links"].get("next", {}).get("href", "")


def leaves(url: str) -> Iterator[bytes]:
    """The leaves of the log, by its bundles, up to the size of the checkpoint."""
    with httpx.Client(base_url=url, timeout=WAIT_S, verify=False) as client:
        size = int(client.get("/log/checkpoint").text.splitlines()[1])
        for number in range(-(-size // 256)):
            width = min(256, size - 256 * number)
            tile = f"/log/tile/entries/{number:03}" + ("" if width == 256 else f".p/{width}")
            yield from split_bundle(client.get(tile).content)


def framed_fields(leaf: bytes) -> list[bytes]:
    """The fields of a leaf, each of which follows its length in 4 bytes."""
    found = []
    while leaf:
        length = int.from_bytes(leaf[:4])
        found.append(leaf[4 : 4 + length])
        leaf = leaf[4 + length :]
    return found
