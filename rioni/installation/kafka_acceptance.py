"""Replaces timelines in Kafka clusters that lost events; see `rioni.installation.acceptance`."""

from rioni.commands.timelines.timeline_switch import TimelineSwitcher
from rioni.commands.timelines.timelines import StartSwitch
from rioni.domain.errors import Conflict
from rioni.domain.timelines.timeline import Timeline
from rioni.installation.infrastructure import Infrastructure
from rioni.installation.kafka import KafkaComparison
from rioni.storage.sql.store_marks import accepted_mark, cluster_mark, ends_text, write_marks


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
    base.database_pool(write_marks, base.log.engine, marks)


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
