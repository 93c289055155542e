import errno
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rioni.domain.errors import RioniError, Unavailable
from rioni.domain.publishing.headers import NO_HEADERS, Headers
from rioni.storage.embedded.data_directory import DataDirectory, DataDirectoryError
from rioni.storage.embedded.events.appender import _Batch
from rioni.storage.embedded.events.chunks import DamagedEvents
from rioni.storage.embedded.events.database import SCHEMA_VERSION
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from rioni.storage.embedded.events.partitions import Partition
from tests.contracts.event_store import events, read_all, read_headers
from tests.storage.embedded import publisher
from tests.support.clock import ManualClock


BATCH = events(*(f"{number:0500}" for number in range(10)))


class NoSignals:
    """Signals that have no receivers."""

    def notify(self, *keys: str) -> None:
        pass


def open_store(path: Path) -> EmbeddedEventStore:
    return EmbeddedEventStore(path, clock=ManualClock(), signals=NoSignals())


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """The system refuses to write beyond a length, as if the disk failed there."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def append_until_refused(store: EmbeddedEventStore) -> int:
    for number in range(10_000):
        try:
            firsts = store.append("topic", {0: BATCH})
        except Unavailable:
            return number
        assert firsts == {0: number * 10}
    raise AssertionError("never refused")


@pytest.fixture
def topic(store: EmbeddedEventStore) -> str:
    store.create_topic("topic", 1)
    return "topic"


def assert_goes_on(store: EmbeddedEventStore, other: EmbeddedEventStore, batches: int) -> None:
    """Acknowledged events can be read, rejected ones are not stored, and appending works again."""
    for each in (store, other):
        assert each.bounds("topic")[0].newest == batches * 10 - 1
        assert read_all(each, "topic", 0, 0, 10**6) == BATCH * batches
    assert store.append("topic", {0: BATCH}) == {0: batches * 10}
    assert other.append("topic", {0: BATCH}) == {0: batches * 10 + 10}
    assert read_all(store, "topic", 0, 0, 10**6) == BATCH * (batches + 2)
    assert store.verify() == []


def test_a_full_disk_fails_appends_and_nothing_else(store, other_store, topic):
    store._database._writer.execute("PRAGMA max_page_count = 60")
    batches = append_until_refused(store)
    assert batches > 5
    # The connection has been opened again, and with it the limit is gone, as if there were space again.
    assert_goes_on(store, other_store, batches)


def test_a_failing_disk_fails_appends_and_nothing_else(store, other_store, topic):
    with file_size_limit(100_000):
        batches = append_until_refused(store)
        assert read_all(other_store, "topic", 0, 0, 10**6) == BATCH * batches
        assert read_all(store, "topic", 0, 0, 10**6) == BATCH * batches
    assert_goes_on(store, other_store, batches)


# strace counts the calls of each thread, so all must come from one thread.
FAILING_FSYNC = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from rioni.domain.errors import Unavailable
from rioni.domain.ports.host import StorePools
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from tests.storage.embedded.events.test_event_store_faults import BATCH, NoSignals
from tests.support.clock import ManualClock

pool = ThreadPoolExecutor(1)

def run_in_pool(function, *args):
    return pool.submit(function, *args).result()

pools = StorePools.all(run_in_pool)
store = EmbeddedEventStore(Path(sys.argv[1]), clock=ManualClock(), signals=NoSignals(), pools=pools)
refused = 0
acknowledged = []
for _ in range(60):
    try:
        acknowledged.append(store.append("topic", {0: BATCH})[0])
    except Unavailable:
        refused += 1
assert acknowledged == list(range(0, len(acknowledged) * 10, 10)), acknowledged
print(len(acknowledged), refused)
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("strace"), reason="injects the error with strace")
@pytest.mark.parametrize("when", ["3", "5+4", "7..9", "10+1"])
def test_after_a_failed_fsync_nothing_is_acknowledged_that_is_not_durable(tmp_path: Path, when: str):
    store = open_store(tmp_path / "events.db")
    store.create_topic("topic", 1)
    store.close()
    calls = ["fsync", "fdatasync"]
    command = ["strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", f"trace={','.join(calls)}"]
    command += [f"-einject={','.join(calls)}:error=EIO:when={when}", sys.executable, "-c", FAILING_FSYNC]
    done = subprocess.run(
        [*command, str(tmp_path / "events.db")], cwd=publisher.ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode and "ptrace" in done.stderr.lower():
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    # The log lines of the broker come before.
    acknowledged, refused = map(int, done.stdout.splitlines()[-1].split())
    assert refused > 0
    store = open_store(tmp_path / "events.db")
    assert read_all(store, "topic", 0, 0, 10**6) == BATCH * acknowledged
    assert store.verify() == []
    store.close()


def test_events_with_flipped_bits_are_never_served(tmp_path: Path):
    good = tmp_path / "good.db"
    store = open_store(good)
    store.create_topic("topic", 2)
    for number in range(14):
        # Tiny chunks, chunks of several to a page, and chunks of many pages.
        size = (1, 300, 9000)[number % 3]
        batch = events(*(f"{number}-{index}".ljust(size, "x") for index in range(3)))
        beside = [Headers(key="k" * size), NO_HEADERS, Headers(subscription_id="s")] if number > 8 else [NO_HEADERS] * 3
        store.append("topic", {number % 2: batch}, headers={number % 2: beside})
    expected = [read_all(store, "topic", partition) for partition in range(2)]
    expected_headers = [read_headers(store, "topic", partition) for partition in range(2)]
    store.close()
    data = good.read_bytes()
    chance = random.Random(20_240_229)
    detected = 0
    # All of the file's header and of the beginnings of pages, which hold their structure, and a sample of the rest.
    offsets = [page + byte for page in range(0, len(data), 4096) for byte in range(0, 100, 7)]
    offsets += [chance.randrange(len(data)) for _ in range(300)]
    for offset in offsets:
        bad = tmp_path / "bad.db"
        flipped = bytearray(data)
        flipped[offset] ^= 1 << chance.randrange(8)
        bad.write_bytes(flipped)
        try:
            with closing(open_store(bad)) as store:
                assert [bounds.newest for bounds in store.bounds("topic")] == [20, 20]
                found = [read_all(store, "topic", partition) for partition in range(2)]
                assert found == expected, offset
                assert [read_headers(store, "topic", partition) for partition in range(2)] == expected_headers, offset
        except RioniError:
            detected += 1
        for path in tmp_path.glob("bad.db*"):
            path.unlink()
    assert detected > len(offsets) / 2


def test_damage_is_reported_with_its_position_and_the_rest_can_be_read(tmp_path: Path):
    path = tmp_path / "events.db"
    store = open_store(path)
    store.create_topic("topic", 2)
    for _ in range(3):
        store.append("topic", {0: BATCH, 1: BATCH})
    store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE chunks SET data = replace(data, '3', '4') WHERE key = 10 + (1 << 43)")
    store = open_store(path)
    assert store.read("topic", 0, 0, 1)[0].next == 10
    with pytest.raises(DamagedEvents, match=r"topic topic, partition 0, position 15.*backup") as caught:
        store.read("topic", 0, 15, 10**6)
    assert caught.value.damage[:3] == ("topic", 0, 15)
    assert read_all(store, "topic", 0, 20) == BATCH
    assert read_all(store, "topic", 1) == BATCH * 3
    assert [damage[:3] for damage in store.verify()][:1] == [("topic", 0, 10)]
    assert store.append("topic", {0: BATCH}) == {0: 30}
    store.close()


def test_damaged_headers_are_reported_with_their_position(tmp_path: Path):
    path = tmp_path / "events.db"
    store = open_store(path)
    store.create_topic("topic", 1)
    for key in "abc":
        store.append("topic", {0: BATCH[:2]}, headers={0: [Headers(key=key), Headers(subscription_id=key)]})
    store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE chunks SET headers = x'' WHERE key = 2 + (1 << 43)")
        connection.execute(
            "UPDATE chunks SET headers = cast(replace(headers, 'c', 'a') AS BLOB) WHERE key = 4 + (1 << 43)"
        )
    store = open_store(path)
    assert store.read("topic", 0, 0, 1)[0].headers == [Headers(key="a"), Headers(subscription_id="a")]
    for position in (2, 4):
        with pytest.raises(DamagedEvents):
            store.read("topic", 0, position, 1)
    assert {damage.position for damage in store.verify()} >= {2, 4}
    store.close()


def test_missing_chunks_are_reported_as_damage_and_not_skipped(tmp_path: Path):
    path = tmp_path / "events.db"
    store = open_store(path)
    store.create_topic("topic", 1)
    for _ in range(3):
        store.append("topic", {0: BATCH})
    store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM chunks WHERE key = 10 + (1 << 43)")
    store = open_store(path)
    assert store.read("topic", 0, 0, 10**6)[-1].next == 10
    with pytest.raises(DamagedEvents, match="position 10"):
        store.read("topic", 0, 10, 10**6)
    assert [damage[:3] for damage in store.verify()] == [("topic", 0, 10)]
    store.close()


def test_one_damaged_partition_does_not_stop_the_others(tmp_path: Path):
    path = tmp_path / "events.db"
    store = open_store(path)
    store.create_topic("damaged", 1)
    store.create_topic("topic", 1)
    store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE partitions SET next = 5 WHERE topic = 'damaged'")
    store = open_store(path)
    with pytest.raises(DamagedEvents, match="damaged"):
        store.bounds("damaged")
    group = [_Batch(topic, {0: BATCH}) for topic in ("damaged", "topic")]
    store._appender._write(group)()
    assert isinstance(group[0].error, DamagedEvents)
    assert group[1].error is None
    assert read_all(store, "topic", 0) == BATCH
    store.delete_topic("damaged")
    store.create_topic("damaged", 1)
    assert store.append("damaged", {0: BATCH}) == {0: 0}
    store.close()


def test_a_foreign_file_is_rejected(tmp_path: Path):
    path = tmp_path / "events.db"
    path.write_bytes(b"not a database, but long enough to be taken for one" * 100)
    with pytest.raises(DamagedEvents):
        open_store(path)


def test_a_newer_schema_is_rejected(tmp_path: Path):
    path = tmp_path / "events.db"
    open_store(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(DataDirectoryError, match="newer version"):
        open_store(path)


def test_a_store_without_positions_left_raises_an_error_with_instructions(store: EmbeddedEventStore, topic: str):
    store.close()
    store = open_store(store._database._path)
    with store._database.writing() as connection:
        full = Partition(1, 2**43 - 5, 2**43 - 5, 0)
        connection.execute(
            "UPDATE partitions SET oldest = ?, next = ?, checksum = ?",
            (full.oldest, full.next, full.checksum(topic, 0)),
        )
    assert store.append(topic, {0: events(1, 2)}) == {0: 2**43 - 5}
    with pytest.raises(Unavailable, match="Begin a new timeline"):
        store.append(topic, {0: events(1, 2, 3)})
    assert read_all(store, topic, 0, 2**43 - 5) == events(1, 2)
    store.close()


def test_the_write_ahead_log_is_bounded(directory: DataDirectory, store: EmbeddedEventStore, topic: str):
    log = Path(f"{directory.events}-wal")
    store._database._wal_bytes_max = 16 * 2**20

    def append(megabytes: int) -> int:
        for _ in range(megabytes):
            store.append(topic, {0: [b'"' + b"x" * 60_000 + b'"'] * 17})
            store.read(topic, 0, 0, 1)
        return log.stat().st_size

    assert append(20) < 8 * 2**20
    # A reader that does not end prevents the log from being reused, until it ends.
    with store._database.reading() as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT * FROM partitions").fetchall()
        held_up = append(14)
        connection.execute("ROLLBACK")
    assert held_up > 12 * 2**20
    assert append(30) < held_up + 3 * 2**20


def test_a_committed_append_is_acknowledged_though_the_disk_fails_afterwards(store, topic, monkeypatch):
    def fail(*_args, **_options):
        raise OSError(errno.EIO, "Input/output error")

    store._database.note_unknown([(topic, 0, 1)])
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", fail)
        assert store.append(topic, {0: [b"1"]}) == {0: 0}
    assert read_all(store, topic, 0) == [b"1"]
