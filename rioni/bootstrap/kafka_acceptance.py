"""Lets an operator accept Kafka clusters that lost events; see `rioni.bootstrap.acceptance`."""

from rioni.bootstrap.infrastructure import Infrastructure
from rioni.bootstrap.kafka_consistency import KafkaComparison
from rioni.commands.timelines.timeline_switch import TimelineSwitcher
from rioni.commands.timelines.timelines import StartSwitch
from rioni.domain.errors import Conflict
from rioni.domain.timelines.timeline import Timeline
from rioni.storage.sql.marks import accepted_mark, cluster_mark, ends_text, write_marks


def accept_kafka(base: Infrastructure, compared: KafkaComparison) -> None:
    """Replace every active timeline that may have lost events, and take marks anew; blocks on Kafka.

    Missing topics are created empty, and everything that was damaged is closed: what follows goes to new timelines,
    whose offsets are greater than all that were ever given out. Readers pass over what a closed timeline lacks.
    Interrupted, it can be run again.

    Args:
        base: of a broker, or of a node of a cluster, that alone is running.
        compared: what was found.

    Raises:
        Conflict: a switch that was under way can't be completed.
        Unavailable: Kafka does not do it.
    """
    stores = base.adapters.stores
    for storage in compared.storages:
        store = stores.of(storage.storage_id)
        for timeline in storage.missing:
            store.create_topic(timeline.topic, timeline.partitions)
        for timeline in storage.damaged:
            store.extend_topic(timeline.topic, timeline.partitions)
    base.registry.refresh()
    # Processes that have died may have left switches: no other one can begin before.
    switcher = TimelineSwitcher(base.registry, base.bus, base.adapters.signals, base.clock)
    switcher.repair(base.own_context)
    marks: dict[str, str] = {}
    for storage in compared.storages:
        if storage.findings:
            marks[cluster_mark(storage.storage_id)] = storage.cluster_id
        for timeline in storage.damaged:
            marks[accepted_mark(timeline.topic)] = ends_text(_close(base, switcher, timeline))
    base.offload(write_marks, base.log.engine, marks)


def _close(base: Infrastructure, switcher: TimelineSwitcher, timeline: Timeline) -> list[int]:
    """Make sure that a timeline is not written to any more; return for each partition where it ends."""
    base.registry.refresh()
    if base.registry.timelines(timeline.event_type).active.id == timeline.id:
        name, storage_id = timeline.event_type, timeline.storage_id
        switcher.switch(StartSwitch(event_type=name, storage_id=storage_id, replaces=timeline.id), base.own_context())
        base.registry.refresh()
        if base.registry.timelines(name).active.id == timeline.id:
            raise Conflict(f"The timeline of event type {name} can't be replaced now. Run the command again.")
    bounds = base.adapters.stores.of(timeline.storage_id).close_topic(timeline.topic)
    return [each.newest + 1 for each in bounds]
