"""Every release reads, verifies and folds the logs of earlier releases to the same read models.

A failure here means that logs of installations could not be read any more, or that the fold has another result.
In the second case `FOLD_VERSION` has to be raised, and the digest pinned anew; the logs themselves never change once
their release is out.
"""

from typing import NamedTuple

import pytest

from dev.frozen_log import FOLDER, digest_of_read_models, load, path_of, rows_of
from rioni import __version__
from rioni.domain.aggregates import FORMATS, TOPICS
from rioni.installation.infrastructure import catch_up
from rioni.projections.fold import FOLD_VERSION
from rioni.storage.log.event_log import SqlEventLog
from rioni.storage.log.verification import verify
from rioni.storage.sql.engines import create_engine
from rioni.storage.sql.migration import upgrade


ENTRIES_MIN = 200


class Pinned(NamedTuple):
    """The expected values for the log of a release."""

    head: str
    """The hash of the last entry: it depends on all entries."""
    fold_version: int
    read_models: str
    """The digest that this version of the fold results in."""


FROZEN = {
    "0.1.0": Pinned(
        "8dc16633807757e5b5322394245e13c90051a762c8b93b18dd7518cd18d641a9",
        1,
        "576c18c8da0c89785518e9dfc61105b016d88583476437075f3c20e2619f0713",
    ),
    "0.1.1": Pinned(
        "4a5d79d0a0556a8a5947c566c623326fb6567e3cea1d0636938cef9b776510e9",
        1,
        "d2e72964388860089a41c01e132f00ac7355888c3482be5e49858d82f363a7c2",
    ),
}


@pytest.fixture(params=FROZEN)
def release(request):
    return request.param


@pytest.fixture
def engine(tmp_path, release):
    engine = create_engine(f"sqlite:///{tmp_path / 'registry.db'}")
    upgrade(engine)
    load(engine, rows_of(release))
    yield engine
    engine.dispose()


def test_every_log_is_pinned():
    assert {path_of(release) for release in FROZEN} == set(FOLDER.glob("log-*"))
    assert {each.release for each in FORMATS.values()} <= FROZEN.keys()
    assert __version__ in FROZEN


def test_the_logs_hold_many_entries_and_every_kind_of_event():
    topics = set()
    for release in FROZEN:
        rows = rows_of(release)
        assert len(rows) >= ENTRIES_MIN
        topics |= {row["topic"] for row in rows}
    assert topics == TOPICS.keys()


def test_a_log_can_be_read_and_is_unchanged(engine, release):
    log = SqlEventLog(engine, TOPICS)
    assert log.head().hash.hex() == FROZEN[release].head
    assert len(log.entries(0, 1_000_000)) == log.head().position
    assert list(verify(engine, TOPICS)) == []
    log.close()


def test_a_log_is_folded_to_the_same_read_models(engine, release):
    catch_up(engine)
    pinned = FROZEN[release]
    assert (FOLD_VERSION, digest_of_read_models(engine)) == (pinned.fold_version, pinned.read_models)
