"""After a failed fsync writes are reported as stored, not stored or unknown, and each report is true."""

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rioni.commands.event_types import CreateEventType
from rioni.config.settings import Config
from rioni.domain.publishing.headers import IdempotencyClaim
from rioni.domain.system.settings import FEATURES
from rioni.domain.timelines.position import format_offset
from rioni.installation.infrastructure import build_infrastructure
from rioni.server.startup import prepare_startup
from rioni.storage.embedded.coordination.coordinator import EmbeddedCoordinator
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from tests.contracts.event_store import read_all
from tests.storage.embedded import publisher
from tests.storage.faulty_writer import PARTITION, WRITES, NoSignals
from tests.support.builders import event_type_spec
from tests.support.clock import ManualClock


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("strace"), reason="injects the error with strace"),
]


def answers(trace: Path, kind: str, path: Path, when: str) -> dict[int, str]:
    """The reported result of each write while these fsyncs failed."""
    calls = "fsync,fdatasync"
    command = ["strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={calls}"]
    command += [f"-einject={calls}:error=EIO:when={when}"]
    command += [sys.executable, "-m", "tests.storage.faulty_writer", kind, str(path)]
    done = subprocess.run(command, cwd=publisher.ROOT, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode and "ptrace" in done.stderr.lower():
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("answer ")]
    found = {int(number): answer for _, number, answer in lines}
    assert len(found) == WRITES
    assert "INJECTED" in trace.read_text()
    # While the disk fails permanently, the outcome can't be determined.
    assert "unknown" in found.values() or not when.endswith("+")
    return found


def open_store(path: Path) -> EmbeddedEventStore:
    return EmbeddedEventStore(path, clock=ManualClock(), signals=NoSignals())


@pytest.mark.parametrize("when", ["6+", "9+", "6..9", "7+3"])
def test_events_are_stored_lost_or_unknown_as_reported_to_publishers(tmp_path, when):
    path = tmp_path / "events.db"
    with contextlib.closing(open_store(path)) as store:
        store.create_topic("topic", 1)
    answered = answers(tmp_path / "trace", "events", path, when)
    with contextlib.closing(open_store(path)) as store:
        found = [int(each) for each in read_all(store, "topic", 0)]
        assert len(set(found)) == len(found)
        reported = {
            word: {number for number, answer in answered.items() if answer == word} for word in answered.values()
        }
        assert reported.get("stored", set()) <= set(found)
        assert not reported.get("nothing", set()) & set(found)
        # A publisher that repeats a batch of unknown outcome under its idempotency key stores it once.
        for number in sorted(reported.get("unknown", ())):
            store.append("topic", {0: [b"%d" % number]}, claim=IdempotencyClaim(str(number), "digest"))
        found = [int(each) for each in read_all(store, "topic", 0)]
        assert sorted(found) == sorted(reported.get("stored", set()) | reported.get("unknown", set()))
        assert store.verify() == []


@pytest.mark.parametrize("when", ["8+", "8..9"])
def test_cursors_are_committed_or_not_or_unknown_as_reported_to_clients(tmp_path, when):
    path = tmp_path / "coordination.db"

    def coordinator() -> contextlib.closing[EmbeddedCoordinator]:
        return contextlib.closing(EmbeddedCoordinator(path, clock=ManualClock(), signals=NoSignals()))

    with coordinator() as before:
        before.initialise("s", {PARTITION: format_offset(1, -1)})
    answered = answers(tmp_path / "trace", "cursors", path, when)
    with coordinator() as after:
        committed = int(after.cursors("s")[PARTITION].rpartition("-")[2])
    assert committed >= max(number for number, answer in answered.items() if answer == "stored")
    assert answered[committed] != "nothing"


@pytest.mark.parametrize("when", ["6+", "6..7", "6..8"])
def test_changes_of_the_registry_are_stored_lost_or_unknown_as_reported_to_clients(tmp_path, when):
    data = tmp_path / "data"
    config = Config(data=data)
    with prepare_startup(config) as directory:
        build_infrastructure(config, directory).close()
    answered = answers(tmp_path / "trace", "registry", data, when)
    with prepare_startup(config) as directory, contextlib.closing(build_infrastructure(config, directory)) as base:
        on = set(base.registry.settings.features)
        for number, answer in answered.items():
            if answer != "unknown" and FEATURES[number] != "repartitioning":
                assert (FEATURES[number] in on) == (answer == "stored"), (number, answer)


def test_unknown_outcomes_are_determined_and_logged_at_the_next_start(tmp_path):
    config = Config(data=tmp_path / "data")
    with prepare_startup(config) as directory, contextlib.closing(build_infrastructure(config, directory)) as base:
        base.bus.dispatch(CreateEventType(spec=event_type_spec(name="a")), base.system_context())
        base.registry.refresh()
        topic = base.registry.timelines("a").active.topic
        store = base.adapters.stores.of("default")
        store.append(topic, {0: [b"1"]})
        store._database.note_unknown([(topic, 0, 1)])
    for ends, outcome in (([(topic, 0, 1)], "stored"), ([(topic, 0, 2)], "not stored")):
        with contextlib.closing(open_store(tmp_path / "data/events.db")) as store:
            store._database.note_unknown(ends)
        with capture_logs() as logged, prepare_startup(config):
            pass
        (line,) = [line for line in logged if "outcome" in line]
        assert (line["outcome"], line["topic"], line["last_position"]) == (outcome, topic, ends[0][2] - 1)
        with capture_logs() as logged, prepare_startup(config):
            pass
        assert not [line for line in logged if "outcome" in line]
