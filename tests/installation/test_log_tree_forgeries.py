"""Every change of a small log, enumerated: found by `verify` with a checkpoint from before, an export, a witness.

A forger can write the database and has the code of the broker, so that hash chain, head and tree are computed again
after each change. Without the signing key the checkpoint from before stays the only one.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from rioni.cli.broker import witnessing as witness_tool
from rioni.cli.broker.witnessing import ForkedLog, witness
from rioni.commands.event_types import CreateEventType
from rioni.commands.subscriptions.subscriptions import CreateSubscription
from rioni.commands.system.storages import AddBlacklistEntry, SwitchFeature
from rioni.config.settings import Config
from rioni.domain.aggregates import TOPICS
from rioni.domain.transparency.checkpoint import leaf, parse_note
from rioni.files.signing_key import load_key
from rioni.installation.database import database_url
from rioni.installation.infrastructure import build_infrastructure
from rioni.installation.log_tree import SeenCheckpoint, read_checkpoint, tree_findings
from rioni.operations import verify_export
from rioni.server.log_tree import build_checkpoint_signer
from rioni.server.startup import prepare_startup
from rioni.storage.log.verification import verify
from rioni.storage.sql.read_only import read_only_engine
from tests.support.builders import event_type_spec, subscription_spec
from tests.support.forged_log import COLUMNS, ForgedLog, Rows, rechained, structural_changes
from tests.support.shown_log import ShownLog
from tests.support.verification import problems


SEEN, ALL = 10, 12
"""The size of the checkpoint, and that of the log."""
INTEGERS = ("position", "version")
STRUCTURAL = structural_changes(ALL)


class Attacked:
    """A registry under attack, and its defenders."""

    def __init__(self, data: Path, log: ForgedLog, engine: Engine, folder: Path) -> None:
        self.data, self.log, self._engine, self._folder = data, log, engine, folder
        self.seen: SeenCheckpoint = read_checkpoint(data / "seen")
        self.key = load_key(data / "log-signing.key")
        self.rows = log.rows

    def by_chain(self) -> list[str]:
        """The findings of `verify` without a checkpoint."""
        return [str(each) for each in verify(self._engine, TOPICS)]

    def by_checkpoint(self) -> list[str]:
        """The further findings of `verify` with the checkpoint taken earlier."""
        return list(tree_findings(self._engine, [self.seen]))

    def by_command(self) -> list[str]:
        """All findings of `rioni verify --checkpoint`, except for the constraints that a forger removes."""
        found = problems(Config(data=self.data), checkpoints=[self.data / "seen"])
        return [each.text for each in found if each.store != "registry.db"]

    def by_export(self, rows: Rows) -> list[str]:
        """The output of `verify_export.py` for these entries and the checkpoint taken earlier."""
        folder = self._folder
        lines = [json.dumps(exported(row)) + "\n" for row in rows[:SEEN]]
        (folder / "entries.jsonl").write_text("".join(lines))
        (folder / "checkpoint").write_text(str(self.seen.note))
        (folder / "log.vkey").write_text("")
        manifest = {
            "format": 1,
            "origin": self.seen.checkpoint.origin,
            "size": SEEN,
            "root": self.seen.checkpoint.root.hex(),
            "complete": True,
            "entries": len(lines),
            "files": {
                name: verify_export.sha256((folder / name).read_bytes()).hex() for name in verify_export.HASHED_FILES
            },
        }
        (folder / "manifest.json").write_text(json.dumps(manifest))
        try:
            list(verify_export.verify(folder, str(self.verifier)))
        except verify_export.Finding as ex:
            return [str(ex)]
        return []

    @property
    def verifier(self):
        """The verifier key of the log."""
        return witness_tool.parse_verifier(ShownLog([], self.seen.checkpoint.origin, self.key).verifier)

    def by_witness(self, rows: Rows) -> bool:
        """Whether a witness that has seen the checkpoint refuses a broker that signs these entries."""
        log = ShownLog([leaf(tuple(row[:-1])) for row in rows], self.seen.checkpoint.origin, self.key)
        state = self._folder / "state"
        state.write_text(json.dumps({"log_key": str(self.verifier), "checkpoint": str(self.seen.note)}))
        try:
            witness(log.client, state, "example.com/witness", self.key, None)
        except ForkedLog:
            assert log.cosigned == 0
            assert str(self.seen.note) == json.loads(state.read_bytes())["checkpoint"]
            return True
        return False


def exported(row: list) -> dict[str, object]:
    """An entry as exports have it."""
    *fields, data, digest = row
    return dict(zip(COLUMNS, (*fields, data.decode(), digest.hex()), strict=True))


@pytest.fixture(scope="module")
def module_attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    data = tmp_path_factory.mktemp("log") / "data"
    config = Config(data=data)
    with prepare_startup(config) as directory, contextlib.closing(build_infrastructure(config, directory)) as base:

        def do(command) -> None:
            base.bus.dispatch(command, base.system_context())

        do(AddBlacklistEntry(type="CONSUMER_APP", name="größe"))
        do(CreateEventType(spec=event_type_spec(name="a")))
        do(CreateSubscription(spec=subscription_spec(event_types=("a",))))
        do(SwitchFeature(feature="kpi_collection", enabled=True))
        (data / "seen").write_text(str(build_checkpoint_signer(base).checkpoint()))
        do(SwitchFeature(feature="kpi_collection", enabled=False))
        do(AddBlacklistEntry(type="CONSUMER_APP", name="later"))
    with (
        contextlib.closing(ForgedLog(data / "registry.db")) as log,
        read_only_engine(database_url(config)) as engine,
    ):
        yield Attacked(data, log, engine, tmp_path_factory.mktemp("export"))


@pytest.fixture
def attacked(module_attacked: Attacked) -> Iterator[Attacked]:
    yield module_attacked
    module_attacked.log.restore()


def test_the_log_as_it_was_written_is_accepted_by_all(attacked):
    assert len(attacked.rows) == ALL
    assert attacked.seen.checkpoint.size == SEEN
    assert attacked.by_chain() == attacked.by_checkpoint() == attacked.by_command() == []
    assert attacked.by_export(attacked.rows) == []
    assert not attacked.by_witness(attacked.rows)
    assert parse_note((attacked.data / "seen").read_bytes()) == attacked.seen.note


def flipped(value: object, bit: int) -> int | bytes:
    """A value with one bit changed; text as bytes, as it may not be text afterwards."""
    if isinstance(value, int):
        changed = value ^ 1 << bit
        return changed - 2**64 if changed >= 2**63 else changed
    data = bytearray(value.encode() if isinstance(value, str) else value)
    data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def bits(value: object, *, every: bool) -> Iterator[int]:
    """Every bit of an integer; one bit of every byte of other values, or of the first and of the last."""
    if isinstance(value, int):
        yield from range(64) if every else (0, 63)
        return
    size = len(value.encode() if isinstance(value, str) else value)
    for byte in range(size) if every else {0, size - 1}:
        if size:
            yield 8 * byte + byte % 8


@pytest.mark.parametrize("column", COLUMNS)
def test_every_flipped_bit_is_found(attacked, column):
    at = COLUMNS.index(column)
    for row in attacked.rows:
        position = row[0]
        for bit in bits(row[at], every=position in {2, ALL - 1}):
            if column == "position" and 1 <= flipped(position, bit) <= ALL:
                continue  # the database has one entry at each position
            attacked.log.set(position, column, flipped(row[at], bit))
            assert attacked.by_chain(), (position, bit)
            if position <= SEEN and column != "hash":
                assert attacked.by_checkpoint(), (position, bit)
            if column == "position":
                attacked.log.restore()
            else:
                attacked.log.set(position, column, row[at].encode() if isinstance(row[at], str) else row[at])
    assert attacked.by_chain() == attacked.by_checkpoint() == []


def other(value: object) -> object:
    """Another valid-looking value of the same type."""
    if isinstance(value, int):
        return value + 1
    if isinstance(value, bytes):
        return value.replace(b'":"', b'":"x', 1)
    assert isinstance(value, str)
    return f"{value[:-1]}{'0' if value[-1:] != '0' else '1'}"


@pytest.mark.parametrize("column", COLUMNS[1:-1])
def test_every_changed_field_is_found_though_the_chain_was_computed_again(attacked, column):
    at = COLUMNS.index(column)
    for number in range(ALL):
        rows = attacked.log.rows
        rows[number][at] = other(rows[number][at])
        covered = number < SEEN
        check_forged(attacked, rechained(rows), covered=covered)


@pytest.mark.parametrize("name", STRUCTURAL)
def test_every_removed_added_and_moved_entry_is_found(attacked, name):
    rows = STRUCTURAL[name](attacked.log.rows)
    for position, row in enumerate(rows, 1):
        row[0] = position
    attacked.log.write(rows, [attacked.log.head])
    assert attacked.by_chain()
    forged = rechained(rows)
    covered = [row[1:-1] for row in forged[:SEEN]] != [row[1:-1] for row in attacked.rows[:SEEN]]
    check_forged(attacked, forged, covered=covered)


def check_forged(attacked: Attacked, rows: Rows, *, covered: bool) -> None:
    """Check that all who have seen the checkpoint refuse a forged log, and that what came later is not blamed on it."""
    attacked.log.write(rows)
    assert bool(attacked.by_checkpoint()) == covered
    assert bool(attacked.by_export(rows)) == covered
    assert attacked.by_witness(rows) == covered


FOREIGN = [0, -1, 2**31, 2**62, 1.5, "", "x", b"", b"1", b"\xff\xfe"]
"""Values of other types, and numbers that no log reaches."""


@pytest.mark.parametrize("column", COLUMNS)
def test_values_of_other_types_are_found_and_do_not_stop_the_search(attacked, column):
    at, row = COLUMNS.index(column), attacked.rows[4]
    for value in FOREIGN:
        if value == row[at] or (column in {"client", "flow_id"} and value == b""):
            continue
        with contextlib.suppress(sqlite3.IntegrityError):  # of positions, which SQLite keeps integers
            attacked.log.run(f"UPDATE log SET {column} = ? WHERE position = ?", (value, 5))
            assert attacked.by_chain(), value
            assert attacked.by_checkpoint() or column == "hash", value
        attacked.log.restore()


def heads(head: tuple) -> Iterator[tuple]:
    """The row of the head with every bit of its position, its hash and its format changed, and with foreign values."""
    for at in (1, 2, 3):
        for bit in range(63 if isinstance(head[at], int) else 256):
            yield (*head[:at], flipped(head[at], bit), *head[at + 1 :])
        for value in FOREIGN:
            yield (*head[:at], value, *head[at + 1 :])


def test_every_flipped_bit_of_the_head_is_found(attacked):
    for head in heads(attacked.log.head):
        if head[3] != 1:  # an earlier format is a valid one: it lets nodes of the release before take part
            attacked.log.run("UPDATE head SET position = ?, hash = ?, format = ?", head[1:])
            assert attacked.by_chain(), head
    attacked.log.restore()
    for statement in ("DELETE FROM head", "INSERT INTO head SELECT 2, position, hash, format FROM head"):
        attacked.log.run(statement)
        assert attacked.by_chain()
        attacked.log.restore()


def test_a_position_that_no_log_reaches_does_not_keep_verify_busy(attacked):
    for position in (2**31, 2**62):
        attacked.log.set(5, "position", position)
        assert [each.partition(";")[0] for each in attacked.by_chain()][:2] == [
            "position 5: 1 entry is missing",
            f"position 13: {position - 13} entries are missing",
        ]
        attacked.log.restore()


@pytest.mark.parametrize("column", ["stream", "topic", "actor", "data"])
def test_text_that_is_not_unicode_does_not_stop_the_command(attacked, column):
    attacked.log.set(5, column, b"\xff\xfe")
    assert len(attacked.by_command()) > 1


def test_a_number_in_place_of_data_does_not_stop_the_command(attacked):
    attacked.log.set(5, "data", 2**62)
    assert any(each.startswith("read models") for each in attacked.by_command())
