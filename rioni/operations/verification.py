"""Checks a broker's data: the log, the read models that follow from it, the stored events, and whether stores fit."""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, select

from rioni.config.settings import Config
from rioni.domain.aggregates import TOPICS
from rioni.domain.errors import RioniError
from rioni.domain.ports.event_store import EventStore
from rioni.domain.ports.host import examine
from rioni.domain.timelines.timeline import Timeline
from rioni.domain.transparency.signed_note import Verifier
from rioni.installation import restored
from rioni.installation.anchored_heads import last_anchoring
from rioni.installation.database import DAMAGE, database_url, opened_for_reading, reading_models
from rioni.installation.from_config import key_file
from rioni.installation.kafka import compare_kafka, kafka_storages, opener_for_reading
from rioni.installation.log_tree import (
    SeenCheckpoint,
    key_file_findings,
    key_findings,
    known_keys,
    lost_keys,
    missing_key,
    signature_findings,
    tree_findings,
)
from rioni.installation.stored_events import chain_findings, kafka_findings
from rioni.installation.stores import counted, cursors_beyond_end, mismatches, structure_checks
from rioni.projections.comparison import Difference, compare
from rioni.projections.projector import all_states
from rioni.projections.tables import STATES, SUBSCRIPTION_EVENT_TYPES
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.data_directory import DataDirectoryError, check_marker
from rioni.storage.embedded.events.verification import OtherVersion, ReadOnlyDatabase
from rioni.storage.embedded.events.verification import verify as verify_events
from rioni.storage.kafka.verification import verify as verify_kafka
from rioni.storage.log.verification import setbacks
from rioni.storage.log.verification import verify as verify_log
from rioni.storage.sql.migration import check_current, current
from rioni.storage.sql.read_only import any_text, read_only_engine


PROCESSES_MAX = 8
"""The most processes that check a long log, or compute its Merkle tree."""

Progress = Callable[[str, int, int], None]
"""A function called with the phase, what is done, and the total."""


class Problem(NamedTuple):
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


def _silent(_phase: str, _done: int, _total: int) -> None:
    pass


def check(
    config: Config,
    progress: Progress = _silent,
    *,
    local: bool = False,
    checkpoints: Sequence[SeenCheckpoint] = (),
    keys: Sequence[Verifier] = (),
) -> Iterator[Problem]:
    """Yield all damage of the internal log, read models and stored events, and all signs of a replaced store.

    Nothing is written, created or migrated; works while the broker runs, on a copy, and in a directory that can't
    be written. Blocks.

    Args:
        config: of the broker.
        progress: called with the phase, what is done, and the total.
        local: whether to check the files only, and not what is in Kafka.
        checkpoints: of the log, seen earlier.
        keys: trusted ones; they, or keys that follow them by signatures, have signed. By default those that the log
            names.

    Raises:
        Unavailable: the data can't be read, or a server can't be reached.
    """
    with read_only_engine(database_url(config)) as engine:
        damage = None
        if not config.database:
            yield from _of_marker(config.data)
            damage = _unreadable(engine)
        if damage is None:
            check_current(engine)
            structure = list(_of_structure(config))
            yield from structure
            yield from _of_registry(config, engine, progress, checkpoints, keys)
            if not local:
                # A registry that lacks tables may not tell what is in Kafka.
                lacks = any(each.store == "registry.db" for each in structure)
                yield from _guarded("Kafka", partial(_in_kafka, config, engine), Exception if lacks else DAMAGE)
            topics = _topics(engine)
        else:
            yield damage
            topics = _Topics({}, {})
    yield from _of_events(config, topics, progress)


def _of_marker(data: Path) -> Iterator[Problem]:
    if not (data / "format").exists():
        return  # A copy may lack it.
    try:
        check_marker(data)
    except (DataDirectoryError, OSError) as ex:
        yield Problem("format", str(ex))


def _unreadable(engine: Engine) -> Problem | None:
    """Return the defects of an embedded registry as a whole."""
    try:
        if current(engine) is not None:
            return None
        text = "it is empty, or a database of another program"
    except RioniError as ex:
        text = str(ex)
    return Problem("registry.db", f"registry.db can't be checked, nor what follows from it: {text}")


def _of_structure(config: Config) -> Iterator[Problem]:
    for store, step in structure_checks(config):
        yield from _guarded(store, partial(_sentences, store, step))


def _sentences(store: str, step: Callable[[], Iterable[str]]) -> Iterator[Problem]:
    yield from (Problem(store, f"{store}: {text}") for text in step())


def _of_registry(
    config: Config,
    engine: Engine,
    progress: Progress,
    checkpoints: Sequence[SeenCheckpoint],
    keys: Sequence[Verifier],
) -> Iterator[Problem]:
    # A server that can't be reached is no damage.
    errors = DAMAGE if config.database else Exception

    def sentences(store: str, found: Callable[[], Iterable[str]]) -> Iterator[Problem]:
        return _guarded(store, lambda: (Problem(store, each) for each in found()))

    def guarded(store: str, step: Callable[..., Iterable[Problem]], *args: Any) -> Iterator[Problem]:
        return _guarded(store, lambda: step(*args), errors)

    yield from guarded("log", _of_log, engine, progress)
    yield from guarded("checkpoints", _of_checkpoints, config, engine, progress, checkpoints, keys)
    yield from guarded("read models", _of_read_models, engine, progress)
    if not config.clustered:
        now_ms = SystemClock().now_ms()
        yield from sentences("stores", lambda: mismatches(engine, config.data))
        yield from sentences("cursors", lambda: cursors_beyond_end(engine, config.data))
        yield from sentences("hash chains", lambda: chain_findings(engine, config.data, now_ms))


def _in_kafka(config: Config, engine: Engine) -> Iterator[Problem]:
    compared = compare_kafka(config, engine)
    compared.check_reached()
    yield from (Problem("stores", each) for each in compared.findings)
    yield from _of_kafka(config, engine, _topics(engine))


def _guarded(
    store: str,
    step: Callable[[], Iterable[Problem]],
    errors: type[Exception] | tuple[type[Exception], ...] = Exception,
) -> Iterator[Problem]:
    """Yield the findings of a step; damage that keeps it from going on, leading to these errors, is a finding."""
    try:
        yield from step()
    except OtherVersion:
        return  # It is a finding of the structure of the file.
    except errors as ex:
        text = str(ex) if isinstance(ex, RioniError) else f"{type(ex).__name__}: {ex}"
        yield Problem(store, f"{store}: damage keeps the check from going on. {text.splitlines()[0]}")


def _of_log(engine: Engine, progress: Progress) -> Iterator[Problem]:
    found = verify_log(engine, TOPICS, processes=_processes(), progress=partial(progress, "log"))
    for finding in found:
        yield Problem("log", f"log, {finding}", finding.position, _resource(engine, finding.stream))


def _processes() -> int:
    return min(PROCESSES_MAX, os.cpu_count() or 1)


def _of_checkpoints(
    config: Config,
    engine: Engine,
    progress: Progress,
    checkpoints: Sequence[SeenCheckpoint],
    keys: Sequence[Verifier],
) -> Iterator[Problem]:
    with reading_models(engine) as connection:
        known = known_keys(connection, keys)
        wrong = [*key_findings(connection), *key_file_findings(connection, key_file(config))]
    yield from (Problem("log", text) for text in wrong)
    for each in checkpoints:
        yield from (Problem("checkpoints", text) for text in signature_findings(each, known))
    for text in tree_findings(engine, checkpoints, partial(progress, "tree"), processes=_processes()):
        yield Problem("checkpoints", text)


def _resource(engine: Engine, stream: str) -> str:
    """Return the resource of a stream, as the read models name it."""
    if not stream.isascii():
        return ""  # ids of streams are UUIDs; a damaged one may be no valid Unicode
    with reading_models(engine) as connection, any_text(connection):
        row = connection.execute(select(STATES.c.kind, STATES.c.key).where(STATES.c.stream == stream)).first()
    return "" if row is None else f"{row.kind}:{row.key}"


def _of_read_models(engine: Engine, progress: Progress) -> Iterator[Problem]:
    for found in compare(partial(_reading_any_text, engine), partial(progress, "read models")):
        yield Problem("read models", _described(found), found.position, found.resource)


@contextlib.contextmanager
def _reading_any_text(engine: Engine) -> Iterator[Connection]:
    with reading_models(engine) as connection, any_text(connection):
        yield connection


def _described(found: Difference) -> str:
    row = f"{found.table}, {', '.join(map(str, found.key))}"
    advice = "`rioni rebuild` makes the read models anew from the log"
    match found.kind:
        case "unknown":
            return (
                f"read models, {row}: can't be compared, as the log can't be folded from position {found.position} on"
            )
        case "missing":
            return f"read models, {row}: the row is missing; {advice}"
        case "extra":
            return f"read models, {row}: nothing in the log says so; {advice}"
    return f"read models, {row}: not what the log says; {advice}"


class _Topics(NamedTuple):
    """The readers of the events of each topic."""

    names: Mapping[str, str]
    """The event type of each topic."""
    readers: Mapping[str, int]
    """The number of subscriptions that read each event type."""

    def affected(self, topic: str) -> str:
        """Return the dependents of the events of a topic, in words."""
        if (name := self.names.get(topic)) is None:
            return ""
        readers = self.readers.get(name, 0)
        return f"event-type:{name}" + (f", which {counted(readers, 'subscription')} read" if readers else "")


def _topics(engine: Engine) -> _Topics:
    """Read the readers of each topic; nothing if damage, which other steps report, prevents it."""
    names: dict[str, str] = {}
    try:
        with reading_models(engine) as connection:
            for kind, _, state in all_states(connection):
                if kind == "timeline":
                    names |= {each.topic: each.event_type for each in state.readable}
            links = connection.execute(select(SUBSCRIPTION_EVENT_TYPES.c.event_type)).scalars().all()
    except Exception:  # noqa: BLE001 - as in `_guarded`
        return _Topics({}, {})
    return _Topics(names, Counter(links))


def _of_events(config: Config, topics: _Topics, progress: Progress) -> Iterator[Problem]:
    for path in sorted(config.data.glob("events*.db")):
        yield from _guarded(path.stem, partial(_of_file, path, topics, progress))


def _of_file(path: Path, topics: _Topics, progress: Progress) -> Iterator[Problem]:
    with contextlib.closing(ReadOnlyDatabase(path)) as database:
        for damage in verify_events(database, partial(progress, path.stem)):
            where = f", topic {damage.topic}, partition {damage.partition}, position {damage.position}"
            text = f"{path.stem}{where if damage.topic else ''}: {damage.what}"
            position = damage.position if damage.position >= 0 else None
            yield Problem(path.stem, text, position, topics.affected(damage.topic))


def _of_kafka(config: Config, engine: Engine, topics: _Topics) -> Iterator[Problem]:
    """Yield the damage of events in storages of type kafka, and deviations from the records of the log."""
    open_store = opener_for_reading(config)
    for each in kafka_storages(engine):
        if not each.timelines:
            continue  # It holds no events, and may not be reachable yet.
        name = f"storage {each.storage.id}"
        with contextlib.closing(open_store(each.storage)) as store:
            examine(store)
            for topic, timeline in each.timelines.items():
                for damage in verify_kafka(store, timeline, compacted=topic in each.compacted):
                    yield Problem(name, f"{name}, {damage}", None, topics.affected(topic))
            for found in kafka_findings(engine, store, each, SystemClock().now_ms()):
                yield Problem(name, f"{name}, {found}", found.position, topics.affected(found.topic))


UNPROTECTED = (
    "committed cursors: one behind the last event is found, one that was moved or deleted is not",
    "idempotency keys and event ids of published events",
    "the marks of the stores, which show that a file was replaced by an older one, and which hash chains the log has",
    "which topics are closed, and which events compaction removes next",
    "how far own event types, such as nakadi.audit.log, report the log",
    "records of refused requests, and of ended sessions of the console",
    "cosignatures of witnesses, which the witnesses keep as well",
    "slots.db, activity.db and jobs.db, which may be lost: the broker makes them anew",
)
"""Data that neither the log nor its checkpoints cover: a person who can write the files can change them unnoticed."""


def remarks(config: Config) -> Iterator[str]:
    """Yield remarks on unusual things that are no damage, and what no check can show. Blocks.

    Raises:
        Unavailable: the data can't be read, or a server can't be reached.
    """
    if not config.database and not (marker := config.data / "format").exists():
        yield f"{marker} is missing here, without which no broker starts"
    with opened_for_reading(config) as engine:
        yield from map(str, setbacks(engine))
        with reading_models(engine) as connection:
            yield from lost_keys(connection)
            yield from missing_key(connection, key_file(config))
            anchored = last_anchoring(connection)
        yield (
            "not covered by the log: events stored after "
            f"{anchored or 'the first start'}, when their hash chains were last recorded there"
        )
    yield from (f"not covered by the log: {each}" for each in UNPROTECTED)


def check_restored(config: Config) -> Iterator[Problem]:
    """Yield deviations in a restored cluster; see `rioni.installation.restored`."""
    with read_only_engine(database_url(config)) as engine, contextlib.ExitStack() as opened:
        check_current(engine)
        storages = {each.storage.id: each.storage for each in kafka_storages(engine)}
        open_store = opener_for_reading(config)

        @cache
        def store_of(storage_id: str) -> EventStore:
            return opened.enter_context(contextlib.closing(open_store(storages[storage_id])))

        def ends(timeline: Timeline) -> list[int]:
            return [bounds.newest for bounds in store_of(timeline.storage_id).bounds(timeline.topic)]

        yield from (Problem("restored", each) for each in restored.findings(config, engine, ends))


def as_object(problem: Problem) -> dict[str, Any]:
    """Return a problem as an object for programs."""
    return {"store": problem.store, "position": problem.position, "finding": problem.text, "affects": problem.affects}
