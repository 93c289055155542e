"""The data of a broker, opened once to be read only, for `rioni verify`."""

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Engine, select

from rioni.config.settings import Config
from rioni.domain.errors import RioniError
from rioni.domain.transparency.checkpoint import Verifier, parse_verifier
from rioni.installation.database import check_exists, database_url, reading_models
from rioni.installation.log_tree import SeenCheckpoint, read_checkpoint
from rioni.installation.stores import counted, registered
from rioni.projections.generations.rebuilds import Progress
from rioni.projections.tables import SUBSCRIPTION_EVENT_TYPES
from rioni.storage.sql.migration import current
from rioni.storage.sql.read_only import read_only_engine


PROCESSES_MAX = 8
"""The most processes that check a long log, or compute its Merkle tree."""


def _silent(_phase: str, _done: int, _total: int) -> None:
    pass


@dataclass(kw_only=True)
class Installation:
    """The data of a broker, opened to be read only, and what an auditor knows about them."""

    config: Config
    engine: Engine
    """The engine of the database of the log and the read models."""
    progress: Progress
    local: bool
    """Whether to check the files only, and not what is in Kafka."""
    restored: bool
    """Whether to compare also the servers of a stopped cluster, which was restored."""
    checkpoints: Sequence[SeenCheckpoint]
    """Checkpoints of the log, seen earlier."""
    keys: Sequence[Verifier]
    """Trusted keys: they, or keys that follow them by signatures, have signed; by default those that the log names."""
    damaged: set[str] = field(default_factory=set)
    """The stores of the findings so far."""

    @cached_property
    def unreadable(self) -> str:
        """Why an embedded registry can't be read at all; empty if it can. Blocks on the disk."""
        try:
            empty = not self.config.database and current(self.engine) is None
        except RioniError as ex:
            return str(ex)
        return "it is empty, or a database of another program" if empty else ""

    @cached_property
    def readers(self) -> "Readers":
        """The readers of each topic; nobody if damage, which other checks report, prevents reading them. Blocks."""
        try:
            with reading_models(self.engine) as connection:
                names = {each.topic: each.event_type for each in registered(connection).timelines}
                links = connection.execute(select(SUBSCRIPTION_EVENT_TYPES.c.event_type)).scalars().all()
        except Exception:  # noqa: BLE001 - as in `_found` of rioni.operations.verification
            return Readers({}, {})
        return Readers(names, Counter(links))

    @property
    def processes(self) -> int:
        """The number of processes to use at most."""
        return min(PROCESSES_MAX, os.cpu_count() or 1)


class Readers(NamedTuple):
    """The readers of the events of each topic."""

    names: Mapping[str, str]
    """The event type of each topic."""
    counts: Mapping[str, int]
    """The number of subscriptions that read each event type."""

    def affected(self, topic: str) -> str:
        """Return the dependents of the events of a topic, in words."""
        if (name := self.names.get(topic)) is None:
            return ""
        readers = self.counts.get(name, 0)
        return f"event-type:{name}" + (f", which {counted(readers, 'subscription')} read" if readers else "")


@contextlib.contextmanager
def opened(
    config: Config,
    progress: Progress = _silent,
    *,
    local: bool = False,
    restored: bool = False,
    checkpoints: Sequence[Path] = (),
    key: str | None = None,
) -> Iterator[Installation]:
    """Open the data of a broker, or of a node of a cluster, for `check` and `remarks`.

    Nothing is written, created or migrated; works while the broker runs, on a copy, and in a directory that can't
    be written.

    Args:
        config: of the broker.
        progress: called with the phase, what is done, and the total.
        local: whether to check the files only, and not what is in Kafka.
        restored: whether to compare also the servers that the nodes of a stopped cluster share, after it was restored.
        checkpoints: files with signed checkpoints of the log, which it has to extend.
        key: the verifier key that signed them; by default those that the log names.

    Raises:
        Unavailable: the data or a checkpoint does not exist or can't be read.
        Malformed: a file is no checkpoint, or the key is none.
    """
    check_exists(config)
    seen = [read_checkpoint(each) for each in checkpoints]
    keys = [parse_verifier(key)] if key else []
    with read_only_engine(database_url(config)) as engine:
        yield Installation(
            config=config,
            engine=engine,
            progress=progress,
            local=local,
            restored=restored,
            checkpoints=seen,
            keys=keys,
        )
