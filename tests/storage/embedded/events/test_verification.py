"""Every single change of a stored row is found, even if the checksums were computed again."""

import sqlite3
from array import array
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from rioni.domain.ports.event_store import Chunk
from rioni.domain.publishing.headers import Headers
from rioni.storage.embedded.events.chunks import CHUNK_COLUMNS, Row, decode, encode
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from rioni.storage.embedded.events.partitions import Partition
from tests.contracts.event_store import events
from tests.storage.embedded.events.test_event_store_faults import NoSignals
from tests.support.clock import ManualClock


CHUNK_NAMES = (*CHUNK_COLUMNS.split(", "), "hash", "digests")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with expired and compacted events, and with partitions of one and of several chunks."""
    path = tmp_path_factory.mktemp("store") / "events.db"
    clock = ManualClock()
    with closing(EmbeddedEventStore(path, clock=clock, signals=NoSignals())) as store:
        store.create_topic("plain", 2)
        store.create_topic("keyed", 1)
        for number in range(4):
            clock.advance(1_000)
            keys = [Headers(key=str(number % 2)), Headers(key=f"only-{number}")]
            store.append("plain", {0: events(number, number, number), 1: events(number)})
            store.append("keyed", {0: events(number, f"{number}!")}, headers={0: keys})
        store.delete_before("plain", clock.now_ms() - 2_500)
        assert store.compact("keyed", clock.now_ms() + 1) == 2
        assert store.verify() == []
    return path


def mutated(value: object) -> object:
    """Another value of the same type."""
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:] if value else b"\1"
    if isinstance(value, str):
        return ("0" if value[0] != "0" else "1") + value[1:] if value else "00"
    assert isinstance(value, int)
    return value + 1_000


def found(original: Path, tmp_path: Path, change) -> list:
    """The findings of verification in a copy of the file after a change."""
    path = tmp_path / "events.db"
    with closing(sqlite3.connect(original)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)
        with target:
            change(target)
    with closing(EmbeddedEventStore(path, clock=ManualClock(), signals=NoSignals())) as store:
        damage = list(store.verify())
    path.unlink()
    return damage


def with_checksum(row: tuple, **changes: object) -> tuple:
    """A row of `chunks` after a change, with the CRC that belongs to it."""
    values = dict(zip(CHUNK_NAMES, row, strict=True)) | changes
    columns: Row = tuple(values[name] for name in CHUNK_NAMES[:7])
    ends = array("I")
    ends.frombytes(columns[4])
    # `decode` refuses the old checksum, so the chunk is put together without it.
    headers = decode(row[:7]).headers if columns[6] == row[6] else None
    chunk = Chunk(columns[0] & (1 << 43) - 1, columns[1], columns[5], ends, headers)
    return (*encode(columns[0] >> 43, chunk), *row[7:])


def test_every_changed_column_is_found(original, tmp_path):
    with closing(sqlite3.connect(original)) as connection:
        chunks = connection.execute(f"SELECT {', '.join(CHUNK_NAMES)} FROM chunks").fetchall()
        names = [row[1] for row in connection.execute("PRAGMA table_info(partitions)")]
        partitions = connection.execute("SELECT * FROM partitions").fetchall()
    assert len(chunks) == 10
    for row in chunks:
        for name, value in zip(CHUNK_NAMES, row, strict=True):
            query = f"UPDATE chunks SET {name} = ? WHERE key = ?"
            assert found(original, tmp_path, lambda c, q=query, v=value, r=row: c.execute(q, (mutated(v), r[0]))), name
    for row in partitions:
        for name, value in zip(names, row, strict=True):
            if name in {"compacted", "topic", "anchored_first", "anchored_next"} or (name == "foot" and not value):
                # Data that only the broker uses, the name by which it is found, and a hash before the first chunk.
                continue
            query = f"UPDATE partitions SET {name} = ? WHERE id = ?"
            assert found(original, tmp_path, lambda c, q=query, v=value, r=row: c.execute(q, (mutated(v), r[0]))), name


def test_every_flipped_bit_of_a_chunk_is_found(original, tmp_path):
    """One bit of every byte, and every bit of the numbers; for a plain chunk, a keyed one, and compacted ones."""
    path = tmp_path / "events.db"
    with closing(sqlite3.connect(original)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)
        chunks = source.execute(f"SELECT {', '.join(CHUNK_NAMES)} FROM chunks").fetchall()
    compacted = [row for row in chunks if row[8]]
    plain, keyed = (next(row for row in chunks if bool(row[6]) == keyed and not row[8]) for keyed in (False, True))
    marks = ", ".join("?" * len(CHUNK_NAMES))
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as forger,
        closing(EmbeddedEventStore(path, clock=ManualClock(), signals=NoSignals())) as store,
    ):
        forger.execute("PRAGMA synchronous = OFF")

        def replace(old: tuple, new: tuple) -> None:
            forger.execute("DELETE FROM chunks WHERE key = ?", (old[0],))
            forger.execute(f"INSERT INTO chunks ({', '.join(CHUNK_NAMES)}) VALUES ({marks})", new)

        assert len(compacted) == 2
        for row in (plain, keyed, *compacted):
            for at, value in enumerate(row):
                for changed in flips(value):
                    if at == 0 and changed in {each[0] for each in chunks}:
                        continue
                    new = (*row[:at], changed, *row[at + 1 :])
                    replace(row, new)
                    assert store.verify(), (CHUNK_NAMES[at], changed)
                    replace(new, row)
            for at in (7, 8):
                for value in ("x", 5, 1.5):
                    replace(row, (*row[:at], value, *row[at + 1 :]))
                    assert store.verify(), (CHUNK_NAMES[at], value)
                    replace(row, row)
        assert store.verify() == []


def flips(value: int | bytes) -> list[int] | list[bytes]:
    """The value with one bit changed; of bytes one bit of each, or one more byte if they are empty."""
    if isinstance(value, int):
        return [value ^ 1 << bit for bit in range(63)]
    return [value[:at] + bytes([value[at] ^ 1 << at % 8]) + value[at + 1 :] for at in range(len(value))] or [b"\0"]


def test_a_changed_event_is_found_though_its_checksum_fits(original, tmp_path):
    with closing(sqlite3.connect(original)) as connection:
        chunks = connection.execute(f"SELECT {', '.join(CHUNK_NAMES)} FROM chunks").fetchall()
    for row in chunks:
        for name in ("recorded_at_ms", "data"):
            value = dict(zip(CHUNK_NAMES, row, strict=True))[name]
            if not value:
                continue
            new = value + 1 if isinstance(value, int) else value.replace(b"{", b"[", 1)
            if new == value:
                continue
            after = with_checksum(row, **{name: new})
            decode(after[:7])
            marks = ", ".join("?" * len(after))
            query = f"INSERT OR REPLACE INTO chunks ({', '.join(CHUNK_NAMES)}) VALUES ({marks})"
            damage = found(original, tmp_path, lambda c, q=query, a=after: c.execute(q, a))
            assert [each.what for each in damage][:1] == [
                "the hash does not fit: this chunk, or the hash before it, was changed"
            ], (name, row)


def test_missing_and_exchanged_chunks_are_found_though_partitions_fit(original, tmp_path):
    def cut(connection: sqlite3.Connection) -> None:
        ((last,),) = connection.execute("SELECT max(key) FROM chunks WHERE key >> 43 = 1").fetchall()
        connection.execute("DELETE FROM chunks WHERE key = ?", (last,))
        row = connection.execute("SELECT id, oldest, next, recorded_at_ms FROM partitions WHERE id = 1").fetchone()
        before = Partition(*row)._replace(next=last & (1 << 43) - 1)
        update = "UPDATE partitions SET next = ?, checksum = ? WHERE id = 1"
        connection.execute(update, (before.next, before.checksum("plain", 0)))

    assert [each.what for each in found(original, tmp_path, cut)] == [
        "the last chunk is not the one that the partition's hash chain ends with"
    ]

    def exchange(connection: sqlite3.Connection) -> None:
        rows = connection.execute(f"SELECT {', '.join(CHUNK_NAMES)} FROM chunks WHERE key >> 43 = 2").fetchall()
        first, second = rows[:2]
        for to, of in ((first, second), (second, first)):
            chunk = decode(of[:7])
            moved = Chunk(to[0] & (1 << 43) - 1, chunk.recorded_at_ms, chunk.data, chunk.ends, chunk.headers)
            values = (*encode(to[0] >> 43, moved), to[0])
            set_ = ", ".join(f"{name} = ?" for name in CHUNK_NAMES[:7])
            connection.execute(f"UPDATE chunks SET {set_} WHERE key = ?", values)

    assert len(found(original, tmp_path, exchange)) == 2


def test_the_hash_of_a_chunk_can_be_computed_from_its_description_alone(original):
    with closing(sqlite3.connect(original)) as connection:
        query = "SELECT key, recorded_at_ms, count, ends, data, headers, hash FROM chunks WHERE key >> 43 = 2"
        last = bytes.fromhex(connection.execute("SELECT foot FROM partitions WHERE id = 2").fetchone()[0])
        for key, at_ms, count, ends, data, headers, stored in connection.execute(query):
            lengths = len(data).to_bytes(8, "little") + len(headers).to_bytes(8, "little")
            content = sha256(b"\0" + lengths + ends + data + headers).digest()
            numbers = b"".join(each.to_bytes(8, "little") for each in (key & (1 << 43) - 1, at_ms, count))
            last = sha256(last + numbers + content).digest()
            assert last == stored
