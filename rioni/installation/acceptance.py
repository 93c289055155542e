"""Restores consistent stores after data loss that an operator accepts, and records the decision."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlalchemy import Engine

from rioni.commands.system.storages import AcceptLoss
from rioni.commands.timelines.timeline_switch import TimelineSwitcher
from rioni.commands.timelines.timelines import StartSwitch
from rioni.config.settings import Config
from rioni.domain.errors import Conflict, Unavailable
from rioni.domain.system.anchors import Anchor, DataMismatch
from rioni.domain.timelines.position import BEFORE_FIRST, TimelinePosition, parse_offset
from rioni.domain.timelines.timeline import FIRST_ORDER, Timeline
from rioni.files.plain import private_umask
from rioni.installation.adapters import check_shared
from rioni.installation.anchoring import StoreMarks
from rioni.installation.database import (
    cluster_identity,
    command_identity,
    damage_reported,
    database_engine,
    database_lease,
)
from rioni.installation.infrastructure import Infrastructure, build_infrastructure, catch_up
from rioni.installation.kafka import KafkaComparison, compare_kafka, kafka_storages, opener_for_reading
from rioni.installation.stored_events import chain_findings, kafka_findings
from rioni.installation.stores import Expected, least_ends, mismatches, read_expected
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.anchors import COORDINATION, write_anchor
from rioni.storage.embedded.coordination.database import CoordinationDatabase
from rioni.storage.embedded.data_directory import (
    DataDirectory,
    DataDirectoryError,
    check_not_migrated,
    registry_missing,
)
from rioni.storage.embedded.events.chunks import DamagedEvents
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.events.partitions import pad
from rioni.storage.embedded.events.verification import forget_anchored
from rioni.storage.sql.engines import reading
from rioni.storage.sql.migration import upgrade
from rioni.storage.sql.store_marks import (
    ZOOKEEPER,
    accepted_mark,
    cluster_mark,
    ends_text,
    installation_id,
    write_marks,
    zookeeper_mark,
)


# --- Replaces timelines in Kafka clusters that lost events; see `rioni.installation.acceptance` ---


def accept_kafka(base: Infrastructure, compared: KafkaComparison) -> None:
    """Replace every active timeline that may have lost events, and record new marks; blocks on Kafka.

    Missing topics are created empty, and all damaged timelines are closed: later events go to new timelines, whose
    offsets are greater than all assigned before. Readers skip the events missing in a closed timeline. After an
    interruption it can be run again.

    Args:
        base: of the only running broker or node.
        compared: result of the comparison.

    Raises:
        Conflict: a pending switch can't be completed.
        Unavailable: Kafka rejects a request or does not answer.
    """
    stores = base.adapters.stores
    for storage in compared.storages:
        store = stores.of(storage.storage_id)
        for timeline in storage.missing:
            store.create_topic(timeline.topic, timeline.partitions)
        for timeline in storage.damaged:
            store.extend_topic(timeline.topic, timeline.partitions)
    base.registry.refresh()
    # Dead processes may have left unfinished switches, which block new ones.
    timeline_switcher = TimelineSwitcher(base.registry, base.bus, base.adapters.signals, base.clock)
    timeline_switcher.repair(base.system_context)
    marks: dict[str, str] = {}
    for storage in compared.storages:
        if storage.findings:
            marks[cluster_mark(storage.storage_id)] = storage.cluster_id
        for timeline in storage.damaged:
            marks[accepted_mark(timeline.topic)] = ends_text(_close(base, timeline_switcher, timeline))
    base.pools.database(write_marks, base.log.engine, marks)


def _close(base: Infrastructure, timeline_switcher: TimelineSwitcher, timeline: Timeline) -> list[int]:
    """Close a timeline permanently; return the end position of each partition."""
    base.registry.refresh()
    if base.registry.timelines(timeline.event_type).active.id == timeline.id:
        name, storage_id = timeline.event_type, timeline.storage_id
        timeline_switcher.switch(
            StartSwitch(event_type=name, storage_id=storage_id, replaces=timeline.id), base.system_context()
        )
        base.registry.refresh()
        if base.registry.timelines(name).active.id == timeline.id:
            raise Conflict(f"The timeline of event type {name} can't be replaced now. Run the command again.")
    bounds = base.adapters.stores.of(timeline.storage_id).close_topic(timeline.topic)
    return [each.newest + 1 for each in bounds]


UNMARKED_MAX = 1_000_000
"""Maximum distance of a cursor after the last mark at which it still proves that events existed: clients may commit any
offset."""


@damage_reported()
@private_umask()
def accept_loss(config: Config, reason: str, also: Sequence[str] = ()) -> list[str]:
    """Make the stores of a broker, or of a cluster, consistent again, whatever is lost; blocks.

    Missing topics are created, and partitions continue after every position known to have been assigned, those in
    Kafka in new timelines, so that no committed cursor refers to a different event than before. After an interruption
    it can be run again.

    Args:
        config: of a stopped broker, or of a node of a cluster whose nodes are all stopped.
        reason: recorded in the internal log, with the findings.
        also: further findings to record.

    Returns:
        The inconsistencies found; if empty, nothing was changed.

    Raises:
        DataDirectoryError: the broker is running, this is no data directory, or a cluster counts.
        Unavailable: a file, the database or Kafka can't be used, or nodes of the cluster are running.
    """
    if not config.clustered and not config.data.exists():
        raise Unavailable(f"There is no data in {config.data}. Name the data directory of a broker: --data.")
    with DataDirectory(config.data) as directory, contextlib.ExitStack() as opened:
        if not config.clustered:
            check_not_migrated(directory.path)
        found = [missing] if config.database is None and (missing := registry_missing(config.data)) else []
        broker = directory.broker
        party = command_identity("accept-loss", broker) if config.clustered else cluster_identity(config, broker)
        opened.enter_context(contextlib.closing(database_lease(config, party).acquire(config.database_lock_timeout_s)))
        engine = database_engine(config)
        opened.callback(engine.dispose)
        upgrade(engine)
        catch_up(engine)
        compared = compare_kafka(config, engine)
        compared.check_reached()
        if config.clustered:
            found += _zookeeper_findings(config, directory, engine)
        else:
            found += mismatches(engine, directory.path)
            # An older or a damaged file has no chains to compare; the findings above cover that.
            with contextlib.suppress(DataDirectoryError, DamagedEvents):
                found += chain_findings(engine, directory.path, SystemClock().now_ms())
        found += [*compared.findings, *also]
        # Last, since closed topics are read for it; accepting a loss overrides the log's state for them.
        if not (found := found or _kafka_findings(config, engine)):
            return []
        with reading(engine) as connection:
            expected = read_expected(connection)
        anchor = Anchor(installation_id(engine), expected.head)
        base = opened.enter_context(contextlib.closing(build_infrastructure(config, directory)))
        base.bus.dispatch(AcceptLoss(findings=tuple(found), reason=reason), base.system_context())
        if config.clustered:
            sequence = check_shared(config, directory, anchor.installation, None)
            write_marks(engine, {ZOOKEEPER: ends_text([sequence])})
        else:
            cursors = _anchor_coordination(directory.coordination, anchor, expected)
            _restore_events(directory, anchor, expected, cursors)
        accept_kafka(base, compared)
        StoreMarks(base).note(everything=True)
        return found


def _kafka_findings(config: Config, engine: Engine) -> list[str]:
    open_store, now_ms = opener_for_reading(config), SystemClock().now_ms()
    found: list[str] = []
    for each in kafka_storages(engine):
        with contextlib.closing(open_store(each.storage)) as store:
            found += (f"storage {each.storage.id}, {text}" for text in kafka_findings(engine, store, each, now_ms))
    return found


def _zookeeper_findings(config: Config, directory: DataDirectory, engine: Engine) -> list[str]:
    try:
        check_shared(config, directory, installation_id(engine), zookeeper_mark(engine))
    except DataMismatch as ex:
        return ex.findings
    return []


def _anchor_coordination(
    path: Path, anchor: Anchor, expected: Expected
) -> Mapping[tuple[str, int], list[TimelinePosition]]:
    """Anchor the database of cursors; return the committed positions by event type and partition."""
    with contextlib.closing(CoordinationDatabase(path)) as database, database.writing() as connection:
        write_anchor(connection, anchor, int(expected.marks.get(COORDINATION, 0)) + 1)
        places: dict[tuple[str, int], list[TimelinePosition]] = {}
        for name, partition, offset in connection.execute("SELECT event_type, partition, offset FROM partitions"):
            if (place := parse_offset(offset, partition=partition, oldest_order=FIRST_ORDER)) is not None:
                places.setdefault((name, int(partition)), []).append(place)
        return places


def _restore_events(
    directory: DataDirectory,
    anchor: Anchor,
    expected: Expected,
    cursors: Mapping[tuple[str, int], list[TimelinePosition]],
) -> None:
    others: dict[Path, list[Timeline]] = {path: [] for path in directory.path.glob("events*.db")}
    stores = others | {directory.events_in(name): timelines for name, timelines in expected.timelines.items()}
    for path, timelines in stores.items():
        if not timelines and not path.exists():
            continue
        with contextlib.closing(EventsDatabase(path)) as database:
            with database.writing() as connection:
                write_anchor(connection, anchor)
                forget_anchored(connection)
            for timeline in timelines:
                pad(database, timeline.topic, _ends(timeline, expected.marks, cursors))


def _ends(
    timeline: Timeline, marks: dict[str, str], cursors: Mapping[tuple[str, int], list[TimelinePosition]]
) -> list[int]:
    """Return for each partition the position after all positions known to have been assigned."""
    least = least_ends(timeline, marks)
    ends = []
    for number in range(timeline.partitions):
        known = least[number] if number < len(least) else 0
        committed = [
            place.position
            for place in cursors.get((timeline.event_type, number), ())
            if place.order == timeline.order and place.position < known + UNMARKED_MAX
        ]
        # The end of a closed timeline is known exactly.
        committed = [] if timeline.latest_position is not None else committed
        ends.append(max(known, max(committed, default=BEFORE_FIRST) + 1))
    return ends
