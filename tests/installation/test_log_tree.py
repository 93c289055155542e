"""A log that was changed and made consistent again does not fit a checkpoint that was seen before."""

import contextlib
import sqlite3
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rioni.commands.system.storages import AddBlacklistEntry
from rioni.config.settings import Config
from rioni.domain.errors import Conflict, Invalid, Malformed, Unavailable
from rioni.domain.hash_chain import GENESIS, link
from rioni.domain.transparency.checkpoint import (
    COSIGNATURE,
    Note,
    cosign,
    parse_checkpoint,
    parse_note,
    sign,
    verified,
    verifier_of,
)
from rioni.files.signing_key import load_key
from rioni.installation.infrastructure import build_infrastructure
from rioni.operations import checkpoints as checkpoint_operations
from rioni.server.log_tree import TileBuilder, build_checkpoint_signer
from rioni.server.startup import prepare_startup
from tests.support.rfc9162 import root_from_path
from tests.support.verification import problems


ENTRIES = 260
SEEN = ENTRIES - 10 + 2
"""With those of the default storage and of the signing key."""
ALL = ENTRIES + 2
WITNESS = Ed25519PrivateKey.from_private_bytes(bytes(32))
KEY = verifier_of("example.com/witness", WITNESS, COSIGNATURE)


@contextlib.contextmanager
def running(data: Path):
    config = Config(data=data, log_witnesses=str(KEY))
    with prepare_startup(config) as directory, contextlib.closing(build_infrastructure(config, directory)) as base:
        yield base


def record(base, begin: int, end: int) -> None:
    for number in range(begin, end):
        command = AddBlacklistEntry(type="CONSUMER_APP", name=f"app-{number}")
        base.bus.dispatch(command, base.system_context())


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a stopped broker with stored tiles, and a checkpoint from before its last entries."""
    data = tmp_path_factory.mktemp("log") / "data"
    with running(data) as base:
        record(base, 0, ENTRIES - 10)
        (data / "seen").write_text(str(build_checkpoint_signer(base).checkpoint()))
        record(base, ENTRIES - 10, ENTRIES)
        TileBuilder(base).build()
    return data


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "data"
    copy.mkdir()
    for path in original.glob("*.db"):
        with (
            contextlib.closing(sqlite3.connect(path)) as source,
            contextlib.closing(sqlite3.connect(copy / path.name)) as target,
        ):
            source.backup(target)
    for name in ("format", "seen", "log-signing.key"):
        (copy / name).write_bytes((original / name).read_bytes())
        (copy / name).chmod(0o600)
    return copy


def rewrite(data: Path, change: Callable[[list[list]], list[list]]) -> None:
    """Change the entries, and compute chain, head and tree again, as a forger would who can write the file."""
    with contextlib.closing(sqlite3.connect(data / "registry.db")) as connection, connection:
        rows = change([list(row) for row in connection.execute("SELECT * FROM log ORDER BY position")])
        last = GENESIS
        for position, row in enumerate(rows, 1):
            row[0] = position
            row[10] = last = link(last, tuple(row[:10]))
        connection.execute("DELETE FROM log")
        connection.executemany(f"INSERT INTO log VALUES ({', '.join('?' * 11)})", rows)
        connection.execute("UPDATE head SET position = ?, hash = ?", (len(rows), last))
        connection.execute("DELETE FROM log_tiles")


def findings(data: Path, key: str | None = None) -> list[str]:
    found = problems(Config(data=data), checkpoints=[data / "seen"], key=key)
    return [each.text.replace(str(data), "") for each in found if each.store == "checkpoints"]


def test_a_log_that_was_only_extended_fits(data):
    assert findings(data) == []
    proof, against = checkpoint_operations.consistency(Config(data=data), data / "seen", None)
    assert (proof["first"], proof["second"], against) == (SEEN, ALL, [])
    assert parse_checkpoint(parse_note(proof["checkpoint"].encode()).text).size == ALL


def changed(column: int, value: object) -> Callable[[list[list]], list[list]]:
    def change(rows: list[list]) -> list[list]:
        rows[100][column] = value
        return rows

    return change


REWRITTEN = f"/seen: the first {SEEN} entries of this log are not those that were there then"


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (changed(5, "bob"), REWRITTEN),
        (changed(4, "2020-01-01T00:00:00.000Z"), REWRITTEN),
        (changed(6, "192.0.2.1"), REWRITTEN),
        (changed(7, "flow"), REWRITTEN),
        (changed(9, b'{"class_version":1,"setting":"settings","type":"CONSUMER_APP","name":"other"}'), REWRITTEN),
        (lambda rows: [*rows[:100], rows[101], rows[100], *rows[102:]], REWRITTEN),
        (lambda rows: [*rows[:100], *rows[101:]], REWRITTEN),
        (lambda rows: [*rows[:100], [0, str(uuid4()), 1, *rows[100][3:]], *rows[100:]], REWRITTEN),
        (lambda rows: rows[:200], f"/seen: the log had {SEEN} entries then, and the last one that is there now is 200"),
        (lambda _rows: [], f"/seen: the log had {SEEN} entries then, and the last one that is there now is 0"),
    ],
    ids=["actor", "time", "address", "flow", "data", "order", "removed", "added", "cut", "emptied"],
)
def test_a_rewritten_log_does_not_fit(data, change, finding):
    key = str(signing_verifier(data))
    rewrite(data, change)
    assert finding in "".join(findings(data, key))


def signing_verifier(data: Path):
    """The verifier key of the broker, from its own file: the log may name another one by now."""
    origin = parse_checkpoint(parse_note((data / "seen").read_bytes()).text).origin
    return verifier_of(origin, load_key(data / "log-signing.key"))


@pytest.mark.parametrize("change", [
    lambda text: text.replace(f"\n{SEEN}\n", f"\n{SEEN - 1}\n"),
    lambda text: text.replace("rioni/", "other/"),
    lambda text: text[:-9] + ("A" if text[-9] == "B" else "B") + text[-8:],
], ids=["size", "name", "signature"])  # fmt: skip
def test_a_forged_checkpoint_is_found(data, change):
    (data / "seen").write_text(change((data / "seen").read_text()))
    assert any("signature" in each or "no known key" in each or "not those" in each for each in findings(data))


def test_a_checkpoint_of_another_key_is_not_taken_for_one_of_this_log(data):
    text = parse_note((data / "seen").read_bytes()).text
    forged = Note(text, (sign(text, parse_checkpoint(text).origin, WITNESS),))
    (data / "seen").write_text(str(forged))
    assert findings(data) == [
        "/seen: no known key has signed this checkpoint; name the key of the log: --log-key",
    ]


@pytest.mark.parametrize("column", ["hashes", "root"])
def test_changed_tiles_are_found(data, column):
    with contextlib.closing(sqlite3.connect(data / "registry.db")) as connection, connection:
        connection.execute(f"UPDATE log_tiles SET {column} = zeroblob(length({column}))")
    (found,) = findings(data)
    assert found.startswith("log, tile 0 of level 0 of the Merkle tree is not that of its entries")


@pytest.mark.parametrize(
    "place",
    [(0, 1), (0, 2**40), (0, -1), (1, 0), (1, 1), (7, 0), (-1, 0)],
    ids=lambda place: f"level {place[0]}, number {place[1]}",
)
@pytest.mark.parametrize("change", ["moved", "added", "empty", "of one hash"])
def test_tiles_that_the_log_is_too_short_for_are_found(data, place, change):
    with contextlib.closing(sqlite3.connect(data / "registry.db")) as connection, connection:
        ((hashes, root),) = connection.execute("SELECT hashes, root FROM log_tiles").fetchall()
        if change == "moved":
            connection.execute("DELETE FROM log_tiles")
        hashes = {"empty": b"", "of one hash": root}.get(change, hashes)
        connection.execute("INSERT INTO log_tiles VALUES (?, ?, ?, ?)", (*place, hashes, root))
    (found,) = findings(data)
    assert found.startswith(f"log, tile {place[1]} of level {place[0]} of the Merkle tree is not that of its entries")


def test_proofs_at_the_command_line_are_complete_and_verified(data):
    proof = checkpoint_operations.prove(Config(data=data), 17)
    note = parse_note(proof["checkpoint"].encode())
    assert list(verified(note, [signing_verifier(data)])) == [signing_verifier(data)]
    checkpoint = parse_checkpoint(note.text)
    hashes = [b64decode(each) for each in proof["hashes"]]
    assert root_from_path(b64decode(proof["leaf"]), 16, proof["size"], hashes) == checkpoint.root
    with pytest.raises(Invalid, match="no entry at position 9999"):
        checkpoint_operations.prove(Config(data=data), 9_999)
    (data / "log-signing.key").unlink()
    with pytest.raises(Unavailable, match="is missing"):
        checkpoint_operations.checkpoint(Config(data=data))


def test_cosignatures_are_shown_with_the_checkpoint_that_they_belong_to(data):
    with running(data) as base:
        signer = build_checkpoint_signer(base)
        assert signer.cosigned() is None
        note = signer.checkpoint()
        signature = cosign(note.text, KEY.name, WITNESS, 1_800_000_000)
        assert signer.add(str(Note(note.text, (*note.signatures, signature))).encode()) == 1
        assert verified(signer.checkpoint(), [KEY]) == {KEY: 1_800_000_000}
        record(base, ENTRIES, ENTRIES + 1)
        assert verified(signer.checkpoint(), [KEY]) == {}
        assert signer.cosigned().text == note.text
        assert verified(signer.cosigned(), [KEY]) == {KEY: 1_800_000_000}
        twice = (
            cosign(note.text, KEY.name, WITNESS, 1_800_000_001),
            cosign(note.text, KEY.name, WITNESS, 1_800_000_002),
        )
        assert signer.add(str(Note(note.text, twice)).encode()) == 1
        assert verified(signer.cosigned(), [KEY]) == {KEY: 1_800_000_002}
        stranger = cosign(note.text, "other", WITNESS, 1)
        with pytest.raises(Invalid, match="log_witnesses"):
            signer.add(str(Note(note.text, (stranger,))).encode())
        with pytest.raises(Malformed, match="not valid"):
            signer.add(str(Note(note.text, (signature._replace(data=bytes(72)),))).encode())
        fork = note.text.replace(f"\n{ALL}\n", f"\n{SEEN}\n")
        with pytest.raises(Conflict):
            signer.add(str(Note(fork, (cosign(fork, KEY.name, WITNESS, 1),))).encode())
