"""Checks a broker's data by a table of checks: the log, the read models, the stored events, and whether stores fit."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, select

from rioni.domain.aggregates import TOPICS
from rioni.domain.errors import RioniError
from rioni.domain.ports.host import examine
from rioni.installation import restored
from rioni.installation.database import DAMAGE, damage_reported, reading_models
from rioni.installation.from_config import key_file
from rioni.installation.kafka import compare_kafka, kafka_storages, opener_for_reading
from rioni.installation.log_tree import (
    key_file_findings,
    key_findings,
    known_keys,
    lost_keys,
    missing_key,
    signature_findings,
    tree_findings,
)
from rioni.installation.opened import Installation
from rioni.installation.stored_events import chain_findings, kafka_findings, last_anchoring
from rioni.installation.stores import cursors_beyond_end, mismatches
from rioni.projections.comparison import compare
from rioni.projections.tables import STATES
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.coordination.database import CoordinationDatabase
from rioni.storage.embedded.data_directory import DataDirectoryError, check_marker
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.events.verification import OtherVersion, ReadOnlyDatabase
from rioni.storage.embedded.events.verification import verify as verify_events
from rioni.storage.embedded.structure import page_findings, table_findings, type_findings
from rioni.storage.kafka.verification import verify as verify_kafka
from rioni.storage.log.verification import setbacks
from rioni.storage.log.verification import verify as verify_log
from rioni.storage.sql.migration import NEW_SQLITE, check_current
from rioni.storage.sql.read_only import any_text


class Inconsistency(NamedTuple):
    """Something that is not as it was written, or does not fit."""

    store: str
    """The checked part: `log`, `read models`, `checkpoints`, `stores`, `cursors`, `hash chains`, a file, a storage."""
    text: str
    """A sentence for people, which names the place."""
    position: int | None = None
    """The position in the log, or in a partition of events."""
    affects: str = ""
    """The resources that depend on it, in words; empty if unknown."""

    def __str__(self) -> str:
        return f"{self.text} (affects {self.affects})" if self.affects else self.text

    def as_object(self) -> dict[str, Any]:
        """Return an object for programs."""
        return {"store": self.store, "position": self.position, "finding": self.text, "affects": self.affects}


Found = Iterator[Inconsistency | str]
"""Findings; one that is only a sentence is about the store of its check."""


# --- The checks of the log and of what follows from it ---


def _of_restored(here: Installation) -> Found:
    check_current(here.engine)
    yield from restored.findings(here.config, here.engine)


def _of_marker(here: Installation) -> Found:
    if here.config.database or not (here.config.data / "format").exists():
        return  # A copy may lack it.
    try:
        check_marker(here.config.data)
    except (DataDirectoryError, OSError) as ex:
        yield str(ex)


def _of_registry(here: Installation) -> Found:
    if here.unreadable:
        yield f"registry.db can't be checked, nor what follows from it: {here.unreadable}"
    else:
        check_current(here.engine)


def _of_log(here: Installation) -> Found:
    found = verify_log(here.engine, TOPICS, processes=here.processes, progress=partial(here.progress, "log"))
    for finding in found:
        yield Inconsistency("log", f"log, {finding}", finding.position, _resource(here.engine, finding.stream))


def _resource(engine: Engine, stream: str) -> str:
    """Return the resource of a stream, as the read models name it."""
    if not stream.isascii():
        return ""  # ids of streams are UUIDs; a damaged one may be no valid Unicode
    with _reading_any_text(engine) as connection:
        row = connection.execute(select(STATES.c.kind, STATES.c.key).where(STATES.c.stream == stream)).first()
    return "" if row is None else f"{row.kind}:{row.key}"


@contextlib.contextmanager
def _reading_any_text(engine: Engine) -> Iterator[Connection]:
    with reading_models(engine) as connection, any_text(connection):
        yield connection


def _of_checkpoints(here: Installation) -> Found:
    with reading_models(here.engine) as connection:
        known = known_keys(connection, here.keys)
        wrong = [*key_findings(connection), *key_file_findings(connection, key_file(here.config))]
    yield from (Inconsistency("log", text) for text in wrong)
    for each in here.checkpoints:
        yield from signature_findings(each, known)
    yield from tree_findings(here.engine, here.checkpoints, partial(here.progress, "tree"), processes=here.processes)


_ADVICE = "`rioni rebuild` makes the read models anew from the log"
_DIFFERENCES = {
    "unknown": "can't be compared, as the log can't be folded from position {position} on",
    "missing": f"the row is missing; {_ADVICE}",
    "extra": f"the log does not have it; {_ADVICE}",
    "changed": f"it differs from the log; {_ADVICE}",
}
"""Texts of findings, by kind of difference."""


def _of_read_models(here: Installation) -> Found:
    for each in compare(partial(_reading_any_text, here.engine), partial(here.progress, "read models")):
        row = f"read models, {each.table}, {', '.join(map(str, each.key))}"
        text = f"{row}: {_DIFFERENCES[each.kind].format(position=each.position)}"
        yield Inconsistency("read models", text, each.position, each.resource)


# --- The checks of files and of Kafka ---


def _of_pages(_here: Installation, file: Path) -> Found:
    yield from (f"{file.name}: {text}" for text in page_findings(file))


def _of_tables(_here: Installation, file: Path) -> Found:
    if file.name == "registry.db":
        found = table_findings(file, NEW_SQLITE.read_text(encoding="utf-8"))
    else:
        known = _known(file)
        found = table_findings(file, known.schema, known.schema_version)
    yield from (f"{file.name}: {text}" for text in found)


def _of_types(_here: Installation, file: Path) -> Found:
    yield from (f"{file.name}: {text}" for text in type_findings(file, _known(file).schema))


def _known(file: Path) -> type[CoordinationDatabase | EventsDatabase]:
    return CoordinationDatabase if file.name == "coordination.db" else EventsDatabase


def _of_events(here: Installation, file: Path) -> Found:
    with contextlib.closing(ReadOnlyDatabase(file)) as database:
        for damage in verify_events(database, partial(here.progress, file.stem)):
            where = f", topic {damage.topic}, partition {damage.partition}, position {damage.position}"
            text = f"{file.stem}{where if damage.topic else ''}: {damage.what}"
            position = damage.position if damage.position >= 0 else None
            yield Inconsistency(file.stem, text, position, here.readers.affected(damage.topic))


def _of_stores(here: Installation) -> Found:
    yield from mismatches(here.engine, here.config.data)


def _of_cursors(here: Installation) -> Found:
    yield from cursors_beyond_end(here.engine, here.config.data)


def _of_chains(here: Installation) -> Found:
    yield from chain_findings(here.engine, here.config.data, SystemClock().now_ms())


def _of_kafka(here: Installation) -> Found:
    """Yield missing topics, the damage of events, and deviations from the records of the log."""
    compared = compare_kafka(here.config, here.engine)
    compared.check_reached()
    yield from (Inconsistency("stores", each) for each in compared.findings)
    open_store = opener_for_reading(here.config)
    for each in kafka_storages(here.engine):
        if not each.timelines:
            continue  # It holds no events, and may not be reachable yet.
        name = f"storage {each.storage.id}"
        with contextlib.closing(open_store(each.storage)) as store:
            examine(store)
            for topic, timeline in each.timelines.items():
                for damage in verify_kafka(store, timeline, compacted=topic in each.compacted):
                    yield Inconsistency(name, f"{name}, {damage}", None, here.readers.affected(topic))
            for found in kafka_findings(here.engine, store, each, SystemClock().now_ms()):
                yield Inconsistency(name, f"{name}, {found}", found.position, here.readers.affected(found.topic))


# --- The table of checks ---


class DataCheck(NamedTuple):
    """A row of the table: a part of the data, what it is compared with, and how."""

    store: str
    """The store of the findings; `{file}` stands for the file."""
    compares: str
    """The two sides of the comparison."""
    find: Callable[..., Found]
    """Yields the findings; takes the installation, and the file if the check is one of files. Blocks."""
    files: str = ""
    """The pattern of the files to check, one by one; empty if the check is not one of files."""
    applies: Callable[[Installation], bool] = lambda here: not here.unreadable
    damage: Callable[[Installation], tuple[type[Exception], ...]] = lambda _: (Exception,)
    """The errors that damage of the store leads to; others end the whole."""


def _is_embedded(here: Installation) -> bool:
    return not (here.unreadable or here.config.clustered)


def _has_own_registry(here: Installation) -> bool:
    return not (here.unreadable or here.config.database)


def _of_database(here: Installation) -> tuple[type[Exception], ...]:
    # A server that can't be reached is no damage.
    return DAMAGE if here.config.database else (Exception,)


def _of_servers(here: Installation) -> tuple[type[Exception], ...]:
    # A registry that lacks tables may not tell what is in Kafka.
    return (Exception,) if "registry.db" in here.damaged else DAMAGE


CHECKS = (
    DataCheck(
        "restored",
        "registry, cursors in ZooKeeper and topics in Kafka with each other",
        _of_restored,
        applies=lambda here: here.restored,
        damage=lambda _: (),
    ),
    DataCheck("format", "the marker of the data directory with this release", _of_marker, applies=lambda _: True),
    DataCheck(
        "registry.db",
        "the version of the database with this release",
        _of_registry,
        applies=lambda _: True,
        damage=lambda _: (),
    ),
    DataCheck("{file.name}", "pages with each other", _of_pages, "registry.db", _has_own_registry),
    DataCheck("{file.name}", "tables with those of this release", _of_tables, "registry.db", _has_own_registry),
    DataCheck("{file.name}", "pages with each other", _of_pages, "coordination.db"),
    DataCheck("{file.name}", "tables with those of this release", _of_tables, "coordination.db"),
    DataCheck("{file.name}", "types of values with those of the columns", _of_types, "coordination.db"),
    DataCheck("{file.name}", "tables with those of this release", _of_tables, "events*.db"),
    DataCheck("{file.name}", "types of values with those of the columns", _of_types, "events*.db"),
    DataCheck("log", "entries with the hash chain and with this release", _of_log, damage=_of_database),
    DataCheck("checkpoints", "entries with checkpoints, keys and Merkle tree", _of_checkpoints, damage=_of_database),
    DataCheck("read models", "rows with the log", _of_read_models, damage=_of_database),
    DataCheck("stores", "files with the marks in the registry", _of_stores, applies=_is_embedded),
    DataCheck("cursors", "committed cursors with the ends of partitions", _of_cursors, applies=_is_embedded),
    DataCheck("hash chains", "stored events with the hash chains in the log", _of_chains, applies=_is_embedded),
    DataCheck(
        "Kafka",
        "topics and records with the registry and the digests in the log",
        _of_kafka,
        applies=lambda here: not (here.unreadable or here.local),
        damage=_of_servers,
    ),
    DataCheck("{file.stem}", "stored events with their hash chains", _of_events, "events*.db", lambda _: True),
)
"""All checks, in their order."""


def check(here: Installation) -> Iterator[Inconsistency]:
    """Yield all damage of the internal log, read models and stored events, and all signs of a replaced store; blocks.

    Raises:
        Unavailable: the data can't be read, or a server can't be reached.
    """
    for row in CHECKS:
        if row.applies(here):
            for file in sorted(here.config.data.glob(row.files)) if row.files else (None,):
                for found in _found(row, here, file):
                    here.damaged.add(found.store)
                    yield found


def _found(row: DataCheck, here: Installation, file: Path | None) -> Iterator[Inconsistency]:
    """Yield the findings of a check; damage that keeps it from going on is a finding as well."""
    store = row.store.format(file=file)
    try:
        for each in row.find(here, *([file] if file else [])):
            yield Inconsistency(store, each) if isinstance(each, str) else each
    except OtherVersion:
        return  # It is a finding of the structure of the file.
    except row.damage(here) as ex:
        text = str(ex) if isinstance(ex, RioniError) else f"{type(ex).__name__}: {ex}"
        yield Inconsistency(store, f"{store}: damage keeps the check from going on. {text.splitlines()[0]}")


# --- Remarks ---

UNPROTECTED = (
    "committed cursors: one after the last event is found, one that was moved or deleted is not",
    "idempotency keys and event ids of published events",
    "the marks of the stores, which show that a file was replaced by an older one, and which hash chains the log has",
    "which topics are closed, and which events compaction removes next",
    "how far own event types, such as nakadi.audit.log, report the log",
    "records of refused requests, and of ended sessions of the console",
    "cosignatures of witnesses, which the witnesses keep as well",
    "slots.db, activity.db and jobs.db, which may be lost: the broker makes them anew",
)
"""Data that neither the log nor its checkpoints cover: a person who can write the files can change them unnoticed."""


def remarks(here: Installation) -> Iterator[str]:
    """Yield remarks on unusual things that are no damage, and what no check can show. Blocks.

    Raises:
        Unavailable: the data can't be read, or a server can't be reached.
    """
    config = here.config
    if not config.database and not (marker := config.data / "format").exists():
        yield f"{marker} is missing here, without which no broker starts"
    with damage_reported():
        yield from map(str, setbacks(here.engine))
        with reading_models(here.engine) as connection:
            yield from lost_keys(connection)
            yield from missing_key(connection, key_file(config))
            anchored = last_anchoring(connection)
    yield (
        "not covered by the log: events stored after "
        f"{anchored or 'the first start'}, when their hash chains were last recorded there"
    )
    yield from (f"not covered by the log: {each}" for each in UNPROTECTED)
