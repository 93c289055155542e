"""The past state of a resource is a replay of the log up to there: at the command line, and as Spark folds it."""

import contextlib
import tempfile
from pathlib import Path

from hypothesis import given, settings

from rioni.config.settings import Config
from rioni.domain.audit_events import shown_state
from rioni.domain.errors import NotFound
from rioni.domain.hash_chain import GENESIS
from rioni.operations.history import differences, state_as_of
from rioni.projections.bulk.executors import rows_of
from rioni.projections.fold import EMPTY, fold
from rioni.projections.tables import STATES
from rioni.storage.sql.engines import create_engine
from tests.support.broker import empty_registry
from tests.support.history import entries, histories
from tests.support.log import append, rows


COMMANDS_MAX = 10
RESOURCES_MAX = 6


@contextlib.contextmanager
def written(log):
    """The settings of a data directory with a log and its read models."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "registry.db").write_bytes(empty_registry())
        engine = create_engine(f"sqlite:///{folder}/registry.db")
        with engine.begin() as connection:
            append(connection, log)
        engine.dispose()
        yield Config(data=Path(folder))


def replays(log):
    """For each prefix of a log the states of all resources, as JSON, by kind and key."""
    folded, states = {}, {}
    for entry in log:
        folded[entry.stream], _ = fold(folded.get(entry.stream, EMPTY), entry)
        states[entry.event.kind, entry.event.key] = folded[entry.stream].body
        yield entry.position, dict(states)


def shown(kind, body):
    return shown_state(kind, body)


@settings(max_examples=6, deadline=None)
@given(histories(COMMANDS_MAX))
def test_the_command_line_shows_what_a_replay_gives_at_every_position(commands):
    log = list(entries(commands))
    resources = list(dict.fromkeys((entry.event.kind, entry.event.key) for entry in log))[:RESOURCES_MAX]
    with written(log) as config:
        before = {}
        for position, states in replays(log):
            for kind, key in resources:
                try:
                    found = state_as_of(config, f"{kind}:{key}", position)
                except NotFound:
                    assert states.get((kind, key)) is None
                else:
                    assert found == (position, shown(kind, states[kind, key]))
            steps = {step.resource: (step.before, step.after) for step in differences(config, position - 1, position)}
            changed = {each for each in states if states[each] != before.get(each)}
            assert steps == {
                f"{kind}:{key}": (shown(kind, before.get((kind, key))), shown(kind, states[kind, key]))
                for kind, key in changed
            }
            before = states


@settings(max_examples=15, deadline=None)
@given(histories(COMMANDS_MAX * 2))
def test_the_fold_of_spark_gives_what_a_replay_gives_at_every_position(commands):
    log = list(entries(commands))
    stored = [row[:-1] for row in rows(log, GENESIS)]
    for position, states in replays(log):
        # Executors get streams one after the other, in the order of their versions.
        sorted_rows = sorted(stored[:position], key=lambda row: (row[1], row[2]))
        found = [row for table, row in rows_of(sorted_rows) if table == STATES.name]
        assert {(row["kind"], row["key"]): row["state"] for row in found} == states
