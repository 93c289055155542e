"""Commands on a host read, change and log exactly what the reference lists, command by command.

Source: reference authorization#commands-on-the-host. That files are private: tests/files/test_plain_private.py.
"""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from rioni.cli import app
from rioni.cli.app import SECTIONS
from rioni.server.log_tree import build_checkpoint_signer
from tests.installation.test_stores import create, publish, running
from tests.support.command_tree import leaves
from tests.support.value_tables import rows_of


ROWS = {
    command.removeprefix("rioni "): (reads, changes, entry)
    for command, reads, changes, entry in rows_of("authorization", "Commands on the host")
}
NONE = "none"
RUNS = {
    "verify": "",
    "projections list": "",
    "projections rollback": "",
    "projections drop": "other",
    "projections promote": "other",
    "backup": "--to backup",
    "audit": "--format jsonl --output audit.jsonl",
    "audit log": "event-type:a",
    "audit show": "a",
    "audit diff": "--from 0",
    "audit checkpoint": "--output present.checkpoint",
    "audit export": "--to export",
    "audit prove": "1",
    "audit consistency": "present.checkpoint",
    "config show": "",
    "tokens create": "--uid shop --file tokens.toml",
    "restore": "--from backup",
}
"""Arguments of the commands without an entry that need no server and no Spark."""
SPARK_OR_SERVERS = {"serve", "demo", "migrate", "rebuild", "cluster up"}
REFUSED = {"projections rollback", "projections drop", "projections promote"}
"""There are no other read models here."""


@pytest.fixture
def data(tmp_path):
    """The data directory of a broker that has an event type, an event and a signed checkpoint."""
    with running(tmp_path / "data") as base:
        create(base)
        publish(base)
        build_checkpoint_signer(base).checkpoint()
    return tmp_path / "data"


def entries(data: Path) -> int:
    """How many entries the internal log has."""
    with contextlib.closing(sqlite3.connect(data / "registry.db")) as connection:
        return int(connection.execute("SELECT count(*) FROM log").fetchone()[0])


def test_each_command_on_the_host_has_a_row():
    of_host = {
        " ".join(words)
        for words, command in leaves(app.app).items()
        if words[0] in SECTIONS["host"].commands and not any("--url" in each.opts for each in command.params)
    }
    assert ROWS.keys() == of_host
    assert {name for name, (_, _, entry) in ROWS.items() if entry.startswith(NONE)} - {*RUNS} <= SPARK_OR_SERVERS


def test_commands_leave_no_entry_where_the_reference_says_none(run, data):
    before = entries(data)
    for command, arguments in RUNS.items():
        options = () if command in ("config show", "tokens create") else ("--data", str(data))
        code, _, err = run(*command.split(), *arguments.split(), *options)
        assert code == (2 if command in REFUSED else 0), (command, err)
        assert entries(data) == before, command
        assert ROWS[command][2].startswith(NONE)


def test_what_reads_leaves_the_files_as_they_are(run, data):
    reading = [name for name, (_, changes, _) in ROWS.items() if changes == "nothing" and name in RUNS]
    before = stored(data)
    for command in reading:
        assert (
            run(*command.split(), *RUNS[command].split(), *(() if command == "config show" else ("--data", str(data))))[
                0
            ]
            == 0
        )
        assert stored(data) == before, command


def stored(data: Path) -> dict[str, bytes]:
    """The contents of what is durable, but for jobs, which tell that a command runs."""
    return {
        path.name: path.read_bytes()
        for path in data.iterdir()
        if path.suffix in (".db", ".key") and path.name not in ("jobs.db", "slots.db")
    }


def test_accepting_a_loss_and_a_new_key_leave_an_entry(run, data):
    before = entries(data)
    (data / "events.db").unlink()
    assert run("accept-loss", "--data", str(data), "--reason", "test")[0] == 0
    assert entries(data) > before
    before = entries(data)
    assert run("audit", "rotate-key", "--data", str(data))[0] == 0
    assert entries(data) == before
    with running(data) as base:
        build_checkpoint_signer(base).checkpoint()
    assert entries(data) > before
    assert not {name for name in ("accept-loss", "audit rotate-key") if ROWS[name][2].startswith(NONE)}
