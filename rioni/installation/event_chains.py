"""Compares the events of embedded storages with their hash chains in the internal log.

That a partition's chain is consistent in itself is checked by `rioni.storage.embedded.events.verification`; this module
compares it with what the log recorded: see `rioni.installation.anchored_heads`.
"""

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sqlalchemy import Engine

from rioni.installation.anchored_heads import Stored, head_findings, span_of
from rioni.projections.queries.states import all_states
from rioni.storage.embedded.data_directory import events_path
from rioni.storage.embedded.events.chain_heads import hash_at, present_heads
from rioni.storage.embedded.events.read_only import ReadOnlyDatabase
from rioni.storage.sql.engines import reading


def chain_findings(engine: Engine, data: Path, now_ms: int) -> Iterator[str]:
    """Yield a sentence for each partition that is not what the log says; blocks on the disk.

    Args:
        engine: of the registry's database, with the current schema.
        data: the data directory.
        now_ms: the present time.

    Raises:
        Unavailable: a database can't be read.
    """
    with reading(engine) as connection:
        timelines = {
            timeline.topic: timeline
            for kind, _, state in all_states(connection)
            if kind == "timeline"
            for timeline in state.readable
        }
    for storage_id in sorted({timeline.storage_id for timeline in timelines.values()}):
        path = events_path(data, storage_id)
        if not path.exists():
            continue  # embedded storages whose file is missing are reported with the other files
        with reading(engine) as connection:
            span = span_of(connection, storage_id)
        with contextlib.closing(ReadOnlyDatabase(path)) as database:
            stored = Stored(
                storage_id=storage_id,
                timelines=timelines,
                present={(head.topic, head.partition): head for head in present_heads(database)},
                hash_at=partial(hash_at, database),
            )
            for place, text in head_findings(engine, stored, span, now_ms):
                yield f"{path.name}, topic {place.topic}, partition {place.partition}: {text}"
