"""Rebuilds read models, and replaces the live ones by those that were built next to them; the broker may run."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Engine, select

from rioni.config.settings import Config
from rioni.domain.errors import Invalid
from rioni.domain.hash_chain import LogHead
from rioni.domain.timestamps import rfc3339
from rioni.files.extras import check_spark
from rioni.files.plain import private_umask
from rioni.installation.database import check_exists, database_engine, database_url, opened_for_reading, reading_models
from rioni.projections.comparison import Difference
from rioni.projections.custom import installed
from rioni.projections.custom_tables import live_tables, prepare
from rioni.projections.generations import generation, swap
from rioni.projections.generations.generation import Known, check_name, models_named
from rioni.projections.generations.rebuilds import Progress
from rioni.projections.queries import audit_log
from rioni.projections.tables import TRACKING_NAME
from rioni.sql.engines import open_engine, writing
from rioni.sql.log_tables import HEAD, TRACKING
from rioni.storage.sql import engines
from rioni.storage.sql.database_locks import rebuild_lock
from rioni.storage.sql.migration import check_current


if TYPE_CHECKING:
    from rioni.projections.bulk.rebuild import RebuildReport


class RebuildRequest(NamedTuple):
    """The read models to rebuild, and where to put them."""

    only: str = ""
    """Names of read models, separated by commas; empty for all."""
    into: str | None = None
    """The name of read models next to the live ones; None to replace these."""
    upto: int | str | None = None
    """The last position, or a time as the log writes it; None for the end of the log."""
    incremental: bool = False
    """Whether to continue the read models of this name."""
    dry_run: bool = False
    """Whether to compare only."""
    differences_max: int | None = 10
    """The most differences to report for each table and kind; None for all."""
    master: str = ""
    """The Spark master to use; see `rioni.projections.bulk.session.SparkOptions`."""
    settings: Sequence[tuple[str, str]] = ()
    """Further settings of Spark."""
    scratch: Path | None = None
    """A folder for temporary files; by default in the data directory."""


@private_umask()
def rebuild(
    config: Config,
    wanted: RebuildRequest,
    *,
    progress: Progress,
    found: Callable[[Difference], None],
) -> "RebuildReport":
    """Rebuild read models with Spark, or only compare; see `rioni.projections.bulk.rebuild`.

    Raises:
        Invalid: the options contradict each other, or a name is not one of read models.
    """
    _check(wanted)
    check_exists(config)
    check_spark()
    from rioni.projections.bulk import rebuild as bulk  # noqa: PLC0415 - an extra
    from rioni.projections.bulk.session import SparkOptions  # noqa: PLC0415 - an extra

    scratch = wanted.scratch or config.data / "scratch"
    engine = database_engine(config)
    check_current(engine)
    with writing(open_engine(database_url(config), functools.partial(engines.write_lock, engine))) as connection:
        connection.execute(select(HEAD).with_for_update()).all()
        prepare(connection, installed())
    order = bulk.Order(
        tables=models_named(wanted.only) if wanted.only else None,
        into=wanted.into,
        upto=_position(engine, wanted.upto),
        incremental=wanted.incremental,
        dry_run=wanted.dry_run,
        differences_max=wanted.differences_max,
    )
    return bulk.rebuild(
        database_url(config),
        scratch.absolute(),
        order,
        progress=progress,
        found=found,
        alone=functools.partial(rebuild_lock, engine),
        turn=functools.partial(engines.write_lock, engine),
        options=SparkOptions(wanted.master, dict(wanted.settings)),
    )


def _check(wanted: RebuildRequest) -> None:
    if wanted.into is not None:
        check_name(wanted.into)
        if wanted.dry_run:
            raise Invalid("--into builds read models, and --dry-run only compares: name one of them.")
    elif wanted.upto is not None:
        raise Invalid("The live read models always show the end of the log: --to needs --into NAME.")
    elif wanted.incremental:
        raise Invalid("--from-checkpoint continues read models that were built next to the live ones: --into NAME.")
    if wanted.incremental and (wanted.only or wanted.upto is not None):
        raise Invalid("--from-checkpoint continues all that was built, up to the end of the log: no --only, no --to.")


def _position(engine: Engine, upto: int | str | None) -> int | None:
    if not isinstance(upto, str):
        return upto
    with reading_models(engine) as connection:
        return audit_log.last_in_log_until(connection, upto)


def projections(config: Config) -> Iterator[Known]:
    """Yield the live read models, as `live`, and all others.

    Raises:
        Unavailable: the data does not exist.
    """
    with opened_for_reading(config) as engine, reading_models(engine) as connection:
        live = connection.execute(select(TRACKING).where(TRACKING.c.name == TRACKING_NAME)).first()
        if live is not None:
            checked = LogHead(live.position, b"")
            yield Known("live", tuple(live_tables()), "", live.position, live.fold, checked)
        yield from generation.known(connection)


def promote(config: Config, name: str) -> Known:
    """Make read models live that were built next to the live ones; see `rioni.projections.generations.swap`."""
    with _alone(config) as engine:
        return swap.promote(engine, name, rfc3339(int(time.time() * 1000)))


def rollback(config: Config) -> Known:
    """Make those read models live again that were live before."""
    with _alone(config) as engine:
        return swap.rollback(engine, rfc3339(int(time.time() * 1000)))


def drop(config: Config, name: str) -> None:
    """Remove read models that are not live, and those left by an interrupted rebuild (`new`).

    Raises:
        NotFound: no read models have this name.
    """
    with _alone(config) as engine, writing(engine) as connection:
        if not generation.remove(connection, name):
            generation.find(connection, name)  # raises, and proposes the nearest name


@contextlib.contextmanager
def _alone(config: Config) -> Iterator[Engine]:
    check_exists(config)
    engine = database_engine(config)
    check_current(engine)
    with private_umask(), rebuild_lock(engine):
        yield open_engine(database_url(config), functools.partial(engines.write_lock, engine))
