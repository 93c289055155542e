import sqlite3
import zlib
from array import array
from contextlib import closing
from pathlib import Path

import pytest

from rioni.domain.access.authorization import Attribute
from rioni.domain.publishing.headers import Headers
from rioni.storage.embedded.events.chunks import _decode_headers, _encode_headers
from tests.contracts.event_store import events, read_all, read_headers
from tests.storage.embedded.events.test_event_store_faults import open_store


# Files of older versions must be readable for ever: these are written as those versions wrote them.
VERSION_1 = """
PRAGMA page_size = 8192;
PRAGMA journal_mode = WAL;
CREATE TABLE partitions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, number INTEGER NOT NULL, oldest INTEGER NOT NULL,
    next INTEGER NOT NULL, recorded_at_ms INTEGER NOT NULL, checksum INTEGER NOT NULL, UNIQUE (topic, number)
);
CREATE TABLE chunks (
    key INTEGER PRIMARY KEY, recorded_at_ms INTEGER NOT NULL, count INTEGER NOT NULL, checksum INTEGER NOT NULL,
    ends BLOB NOT NULL, data BLOB NOT NULL
);
PRAGMA user_version = 1;
"""


def write_version_1(path: Path, batches: list[list[bytes]]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(VERSION_1)
        position = 0
        for batch in batches:
            key, data = 1 << 43 | position, b",".join(batch)
            ends = array("I", [len(b",".join(batch[: index + 1])) for index in range(len(batch))]).tobytes()
            head = b"".join(value.to_bytes(size, "little") for value, size in ((key, 8), (7, 8), (len(batch), 4)))
            connection.execute(
                "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?)",
                (key, 7, len(batch), zlib.crc32(head + ends + data), ends, data),
            )
            position += len(batch)
        row = b"".join(value.to_bytes(8, "little") for value in (0, 1, 0, position, 7))
        checksum = zlib.crc32(b"topic", zlib.crc32(row))
        connection.execute("INSERT INTO partitions VALUES (1, 'topic', 0, 0, ?, 7, ?)", (position, checksum))


def test_a_file_of_version_1_is_upgraded_with_headers_and_ids_and_keeps_its_events(tmp_path: Path):
    path = tmp_path / "events.db"
    write_version_1(path, [events(1, 2), events("x" * 70_000), events(3)])
    for opened in range(2):
        store = open_store(path)
        assert read_all(store, "topic", 0)[:4] == events(1, 2, "x" * 70_000, 3)
        assert store.verify() == []
        firsts = store.append("topic", {0: events(4)}, headers={0: [Headers(key="k")]}, ids={0: ["id"]})
        assert firsts == ({} if opened else {0: 4})
        assert read_headers(store, "topic", 0)[4:] == [Headers(key="k")]
        store.close()


def test_an_upgrade_reads_and_writes_no_events(tmp_path: Path):
    path = tmp_path / "events.db"
    write_version_1(path, [events("x" * 70_000)] * 100)
    before = path.read_bytes()
    store = open_store(path)
    assert (tmp_path / "events.db-wal").stat().st_size < 200_000
    store.close()
    after = path.read_bytes()
    assert sum(before[page : page + 8192] != after[page : page + 8192] for page in range(0, len(before), 8192)) <= 5


# The stored form of headers, independent of the class.
@pytest.mark.parametrize(
    ("stored", "headers"),
    [
        ("9180", Headers()),
        ("9181a36b6579a161", Headers(key="a")),
        ("9181af737562736372697074696f6e5f6964a161", Headers(subscription_id="a")),
        ("9181a46176726fc401ff", Headers(avro=b"\xff")),
        ("9181a56f776e657282a9646174615f74797065a161a576616c7565a162", Headers(owner=Attribute("a", "b"))),
    ],
)
def test_stored_headers_stay_readable(stored: str, headers: Headers):
    assert _decode_headers(bytes.fromhex(stored)) == [headers]
    assert _encode_headers([headers]) == bytes.fromhex(stored)
