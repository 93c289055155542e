"""Compares the servers of a cluster after they were restored: registry, cursors in ZooKeeper, topics in Kafka."""

import contextlib
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from sqlalchemy import Engine

from rioni.config.settings import Config
from rioni.domain.errors import Unavailable
from rioni.domain.ports.event_store import EventStore
from rioni.domain.system.anchors import INSTALLATION, DataMismatch
from rioni.installation.adapters import shared_adapters
from rioni.installation.kafka import compare_kafka, opener_for_reading
from rioni.installation.stores import Ends, Registered, beyond_ends, registered
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.sql.engines import reading
from rioni.storage.sql.store_marks import ZOOKEEPER, ends_of, read_marks


ACCEPT = "Restore a newer copy of it; without one, run `rioni accept-loss`"
RESET = (
    ". Reset its cursors with PATCH /subscriptions/{id}/cursors when the nodes are running, or restore newer events."
)


def findings(config: Config, engine: Engine) -> Iterator[str]:
    """Yield a sentence, with what to do, for each thing that does not fit; blocks on ZooKeeper and Kafka.

    Nothing is changed, apart from a session in ZooKeeper that ends at once.

    Args:
        config: of a node; all nodes are stopped.
        engine: of the registry's database, with the current schema.

    Raises:
        Unavailable: these are not the settings of a cluster, or a server does not answer.
    """
    if not config.clustered:
        raise Unavailable("--restored is for a cluster; `rioni verify` checks a data directory without it.")
    with reading(engine) as connection:
        marks, known = read_marks(connection), registered(connection)
    compared = compare_kafka(config, engine)
    compared.check_reached()
    missing = {timeline.topic for storage in compared.storages for timeline in storage.missing}
    present = [each for each in known.timelines if each.topic not in missing]
    with (
        _ends(config, known) as ends,
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(EmbeddedSignals(Path(folder))) as local,
    ):
        shared = shared_adapters(config, local)
        with contextlib.closing(shared.coordinator):
            if (mark := marks.get(ZOOKEEPER)) is not None:
                try:
                    shared.claim(marks[INSTALLATION], ends_of(mark)[0])
                except DataMismatch as ex:
                    yield from (f"{each} {ACCEPT}." for each in ex.findings)
            cursors = (
                (each, key, offset)
                for each in known.subscriptions
                for key, offset in shared.coordinator.cursors(each).items()
            )
            yield from beyond_ends(cursors, present, ends, RESET)


@contextlib.contextmanager
def _ends(config: Config, known: Registered) -> Iterator[Ends]:
    open_store = opener_for_reading(config)
    with contextlib.ExitStack() as opened:

        @cache
        def store_of(storage_id: str) -> EventStore:
            return opened.enter_context(contextlib.closing(open_store(known.storages[storage_id])))

        yield lambda timeline: [each.newest + 1 for each in store_of(timeline.storage_id).bounds(timeline.topic)]
