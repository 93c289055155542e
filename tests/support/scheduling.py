"""Tests that one worker of pytest-xdist runs in a row, and those that come first."""

import contextlib
import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling


SHARING: Mapping[str, Iterable[str]] = {
    "spark": (
        "tests/bulk/test_audit.py",
        "tests/bulk/test_audit_table.py",
        "tests/bulk/test_commands.py",
        "tests/bulk/test_generations.py",
        "tests/bulk/test_histories.py",
        "tests/bulk/test_rebuild.py",
        "tests/bulk/test_resuming.py",
    ),
    "registered": (
        "tests/acceptance/test_base_path.py",
        "tests/spark/test_event_reader_whole_events.py",
        "tests/spark/test_writer_event_values.py",
        "tests/spark/test_event_reader_json_columns.py",
        "tests/spark/test_source.py",
        "tests/spark/test_source_kafka.py",
        "tests/spark/test_stream_reader.py",
        "tests/spark/test_stream_reader_identity.py",
        "tests/spark/test_writer.py",
    ),
    "several_brokers": (
        "tests/storage/kafka/idempotence/test_idempotent_appender.py",
        "tests/storage/kafka/test_delivery.py",
        "tests/storage/kafka/test_events_faults.py",
        "tests/storage/kafka/topics/test_topics_stale_leaders.py",
    ),
    "other_kafka_cluster": (
        "tests/acceptance/test_kafka.py",
        "tests/acceptance/test_outage_logs.py",
        "tests/acceptance/test_storage_hangs.py",
        "tests/acceptance/test_switching_under_load.py",
        "tests/installation/test_kafka.py",
        "tests/cli/cluster/test_cluster.py",
        "tests/properties/test_switching_kill_cluster.py",
        "tests/storage/kafka/idempotence/test_idempotent_appender_crashes.py",
        "tests/storage/kafka/idempotence/test_idempotent_appender_away.py",
        "tests/storage/kafka/topics/test_topics_hanging.py",
    ),
}
"""For each session-wide fixture that takes long to start: the files that use it.

PERF: starting one takes 6 to 18 s of CPU, which each of five workers would spend: three minutes of CPU together.
"""
SPLIT = ("tests/properties/test_soak.py",)
"""Files whose tests go to several workers, since each of them is long and none shares anything.

They mostly wait: so they come first, together with those that start Spark and compute.
"""
_GROUPS = {file: fixture for fixture, files in SHARING.items() for file in files}


class Scheduling(LoadFileScheduling):
    """Gives a file to one worker, and so all files that share such a fixture; files with slow tests come first.

    The mark `xdist_group` would do the same, but has no effect on tests of pytest 9.2 (pytest-xdist 3.8).
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return nodeid if file in SPLIT else group_of(nodeid) or file

    def schedule(self) -> None:
        """Schedule the tests in the order of `slow_first`, not by their number as the base class does."""
        self.config.option.loadscopereorder = False
        super().schedule()


LAST = ("tests/acceptance/",)
"""Tests that share servers which each worker starts for itself: together, these run no longer than needed."""
NODES = (*LAST, "tests/console/")
"""Tests that may run against nodes of a cluster."""


def needs_nodes(nodeid: str) -> bool:
    """Whether a test runs against the nodes that tests share: two nodes for each worker would cost much more."""
    return nodeid.startswith(NODES) and "[cluster" in nodeid


def group_of(nodeid: str) -> str:
    """The fixture that a test shares with others, which one worker runs in a row; empty if there is none."""
    return _GROUPS.get(nodeid.partition("::")[0]) or ("cluster_nodes" if needs_nodes(nodeid) else "")


def slow_first(items: list[pytest.Item]) -> None:
    """Move the tests of files with slow ones to the front, so that no worker begins with them at the end.

    Those of `SPLIT` come before them. The tests of `LAST`, and those against nodes, come last, ordered in the same way.
    """
    slow = {item.path for item in items if any(map(item.get_closest_marker, ("slow", "nightly", "spark")))}

    def turn(item: pytest.Item) -> tuple[bool, ...]:
        nodes = needs_nodes(item.nodeid)
        last = nodes or item.nodeid.startswith(LAST)
        return last, not nodes, not item.nodeid.startswith(SPLIT), item.path not in slow

    items.sort(key=turn)


def import_in_turns(config: pytest.Config) -> None:
    """Import the test files that are to be collected, each worker beginning elsewhere.

    The assertions of each file have to be rewritten, which takes as long as all else of the collection: so one worker
    does it for the others, which find the result in the cache. What cannot be imported is left to the collection.
    """
    asked = (Path(argument.partition("::")[0]).resolve() for argument in config.args)
    files = sorted({file for path in asked for file in ((path,) if path.is_file() else path.rglob("test_*.py"))})
    worker = config.workerinput
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"] % max(len(files), 1)
    for file in files[first:] + files[:first]:
        if file.is_relative_to(config.rootpath):
            with contextlib.suppress(Exception, pytest.skip.Exception):
                importlib.import_module(".".join(file.relative_to(config.rootpath).with_suffix("").parts))
