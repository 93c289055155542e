"""Commands on damaged data: each one says in a line or two which file can't be used, and none ends in a traceback."""

import itertools
import json
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rioni.files.signing_key import load_key
from tests.support.builders import event_type_body
from tests.support.server import running_server
from tests.support.waiting import WAIT_S


FILES = ("registry.db", "events.db", "coordination.db")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with changes, events, a committed cursor, and a signing key."""
    data = tmp_path_factory.mktemp("original") / "data"
    with running_server(data, "--workers", "1") as server, server.client() as http:
        assert http.post("/event-types", json=event_type_body(name="order.created")).status_code == 201
        events = [{"order_id": str(number)} for number in range(200)]
        bodies = [
            {
                **each,
                "metadata": {"eid": f"00000000-0000-4000-8000-{number:012}", "occurred_at": "2026-01-01T00:00:00Z"},
            }
            for number, each in enumerate(events)
        ]
        answer = http.post("/event-types/order.created/events", json=bodies)
        assert answer.status_code == 200, answer.text
        body = {"owning_application": "shop", "event_types": ["order.created"], "read_from": "begin"}
        subscription = http.post("/subscriptions", json=body).json()["id"]
        cursor = {"event_type": "order.created", "partition": "0", "offset": "001-0001-000000000000000000"}
        reset = http.patch(f"/subscriptions/{subscription}/cursors", json={"items": [cursor]})
        assert reset.status_code == 204, reset.text
        assert http.get("/log/checkpoint").status_code == 200
    return data


def empty(path: Path) -> None:
    path.write_bytes(b"")


def headless(path: Path) -> None:
    path.write_bytes(bytes(100) + path.read_bytes()[100:])


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garbage(path: Path) -> None:
    path.write_bytes(random.Random(0).randbytes(path.stat().st_size))


def zeroed(path: Path) -> None:
    """All pages after the first one are empty, as after a lost write."""
    path.write_bytes(path.read_bytes()[:4096] + bytes(path.stat().st_size - 4096))


def missing(path: Path) -> None:
    path.unlink()


def dangling(path: Path) -> None:
    """A link to nowhere, as to a disk that is not mounted."""
    path.unlink()
    path.symlink_to("absent/file")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def stranger(path: Path) -> None:
    """A database of another program."""
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()


def without_tables(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if not name.startswith("sqlite_") and name != "alembic_version":
                connection.execute(f'DROP TABLE "{name}"')
    connection.close()


def other_values(path: Path) -> None:
    """Each row holds blobs instead of texts."""
    with sqlite3.connect(path) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{name}")') if row[2] == "TEXT"]
            for column in columns:
                query = f'UPDATE OR IGNORE "{name}" SET "{column}" = x\'ff00fe\''
                try:
                    connection.execute(query)
                except sqlite3.Error:
                    continue  # of a table without row ids
    connection.close()


def other_members(path: Path) -> None:
    """Each JSON object has other members than it was written with."""
    with sqlite3.connect(path) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for column in [row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')]:
                connection.execute(
                    f'UPDATE OR IGNORE "{name}" SET "{column}" = \'{{"a":[]}}\' WHERE "{column}" LIKE \'{{%\''
                )
    connection.close()


DAMAGES: list[Callable[[Path], None]] = [
    empty,
    headless,
    halved,
    garbage,
    zeroed,
    missing,
    folder,
    stranger,
    without_tables,
    other_values,
]

READING = [
    ("verify",),
    ("verify", "--json"),
    ("audit",),
    ("audit", "log", "event-type:order.created"),
    ("audit", "show", "order.created"),
    ("audit", "diff", "--from", "0"),
    ("audit", "checkpoint"),
    ("audit", "prove", "1"),
    ("audit", "export", "--to", "exported"),
    ("projections", "list"),
    ("backup", "--to", "copy"),
    ("accept-loss", "--reason", "test"),
]


@pytest.mark.parametrize(
    ("damage", "file"),
    [*itertools.product(DAMAGES, FILES), (other_members, "registry.db")],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_no_command_ends_in_a_traceback_on_damaged_data(run, original, tmp_path, file, damage):
    wrong = []
    for words in READING:
        data = damaged(original, tmp_path, file, damage)
        try:
            code, out, err = run(*words, "--data", str(data))
        except Exception as ex:  # noqa: BLE001 - a traceback, of whatever
            wrong.append((*words, f"{type(ex).__name__}: {ex}"[:300]))
            continue
        fine = (
            code in {0, 1, 2}
            and "Traceback" not in out + err
            and len(err.splitlines()) <= (12 if words[0] == "backup" else 3)
        )
        if words[0] == "backup" and code:
            # Damage of rows is found in the copy.
            fine &= file in err or "so it does not replace an earlier backup" in err
        if words[0] == "verify":
            fine &= code != 0 and (file.removesuffix(".db") in out + err or "log" in out)
        if "--json" in words and code == 1:
            fine &= [json.loads(line) for line in out.splitlines()][-1]["findings"] > 0
        if not fine:
            wrong.append((*words, code, out[-300:], err[-600:]))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("damage", [without_tables, other_values, other_members], ids=lambda each: each.__name__)
def test_a_broker_does_not_start_on_a_damaged_registry(original, tmp_path, damage):
    data = damaged(original, tmp_path, "registry.db", damage)
    command = [sys.executable, "-m", "rioni", "serve", "--port", "0", "--data", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: ")


@pytest.mark.parametrize(
    "table", ["event_types", "schemas", "states", "subscriptions", "timelines", "log", "audit_log"]
)
def test_a_row_that_can_not_be_read_is_a_finding(run, original, tmp_path, table):
    with sqlite3.connect(original / "registry.db") as connection:
        columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")') if row[2] != "INTEGER"]
    connection.close()
    for column in columns:
        with sqlite3.connect(damaged(original, tmp_path, "registry.db", lambda _: None) / "registry.db") as connection:
            one = f'SELECT rowid FROM "{table}" WHERE "{column}" IS NOT NULL LIMIT 1'
            connection.execute(f'UPDATE "{table}" SET "{column}" = \'x\' WHERE rowid = ({one})')
            changed = connection.total_changes
        connection.close()
        code, found, _ = findings(run, tmp_path / "data")
        assert code == bool(found) == bool(changed), column


@pytest.mark.parametrize("damage", [empty, garbage, folder], ids=lambda each: each.__name__)
def test_a_marker_that_a_broker_refuses_is_a_finding(run, original, tmp_path, damage):
    data = damaged(original, tmp_path, "format", damage)
    code, found, _ = findings(run, data)
    assert code == 1
    (text,) = found
    assert text.startswith(f"{data / 'format'} is ")
    command = [sys.executable, "-m", "rioni", "serve", "--port", "0", "--data", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stderr) == (2, f"Error: {text}\n")


def test_a_copy_without_a_marker_is_remarked(run, original, tmp_path):
    code, found, remarks = findings(run, damaged(original, tmp_path, "format", missing))
    assert (code, found) == (0, [])
    assert any("format is missing here" in each for each in remarks)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", [empty, stranger], ids=lambda each: each.__name__)
def test_a_file_without_tables_of_ours_is_not_taken_for_an_older_one(run, original, tmp_path, file, damage):
    found = findings(run, damaged(original, tmp_path, file, damage))[1]
    assert any("it is empty, or a database of another program" in each for each in found)
    assert not any("older version" in each for each in found)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    "damage", [dangling, *(each for each in DAMAGES if each is not other_values)], ids=lambda each: each.__name__
)
def test_a_restore_over_damaged_data_says_which_file_can_not_be_compared(run, original, tmp_path, file, damage):
    data = damaged(original, tmp_path, file, damage)
    assert run("backup", "--to", str(tmp_path / "copy"), "--data", str(original))[0] == 0
    code, _, err = run("restore", "--from", str(tmp_path / "copy"), "--data", str(data))
    assert "Traceback" not in err
    assert code == 0 or file in err or "its internal log has another history" in err, err
    assert "registry.db is missing next to registry.db" not in err
    assert run("restore", "--from", str(tmp_path / "copy"), "--data", str(data), "--accept-lost-events")[0] == 0
    assert findings(run, data)[0] == 0


@pytest.mark.parametrize("file", FILES)
def test_a_backup_names_what_keeps_it_from_locking_a_file(run, original, tmp_path, file):
    data, _ = copied(original, tmp_path)
    lock = data / f"{file}-lock"
    folder(lock)
    code, _, err = run("backup", "--to", str(tmp_path / "copy"), "--data", str(data))
    assert code == 2
    assert err.startswith(f"Error: {lock} can't be used: Is a directory.")


def damaged(original: Path, folder: Path, file: str, damage: Callable[[Path], None]) -> Path:
    """A copy of the data, with one file damaged; of an earlier command nothing is left."""
    for name in ("data", "copy", "exported"):
        shutil.rmtree(folder / name, ignore_errors=True)
    shutil.copytree(original, folder / "data")
    damage(folder / "data" / file)
    return folder / "data"


def findings(run, data: Path) -> tuple[int, list[str], list[str]]:
    """The exit code of verify, its findings, and its remarks."""
    code, out, _ = run("verify", "--json", "--data", str(data))
    *found, summary = map(json.loads, out.splitlines())
    return code, [each["finding"] for each in found], summary["remarks"]


def copied(original: Path, folder: Path) -> tuple[Path, Path]:
    data = folder / "data"
    shutil.copytree(original, data)
    return data, data / "log-signing.key"


def test_a_signing_key_that_the_log_does_not_name_is_found(run, original, tmp_path):
    data, key = copied(original, tmp_path)
    assert findings(run, data)[:2] == (0, [])
    key.unlink()
    code, found, remarks = findings(run, data)
    assert (code, found) == (0, []), "a copy may lack the key"
    assert any(f"{key} is missing here" in each for each in remarks)
    load_key(key)
    code, (found,), _ = findings(run, data)
    assert code == 1
    assert "log-signing.key holds " in found
    assert "which the log does not name" in found
    key.write_bytes(b"garbage")
    code, (found,), _ = findings(run, data)
    assert code == 1
    assert "is not an unencrypted private key in PEM" in found
    assert key.read_bytes() == b"garbage"


def test_a_key_that_follows_the_last_one_is_no_finding_and_a_lost_one_is_remarked(run, original, tmp_path):
    data, _ = copied(original, tmp_path)
    for option in ((), ("--lost",)):
        assert run("audit", "rotate-key", *option, "--data", str(data))[0] == 0
        assert findings(run, data)[:2] == (0, [])
        with running_server(data, "--workers", "1") as server, server.client() as http:
            assert http.get("/log/checkpoint").status_code == 200
        code, found, remarks = findings(run, data)
        assert (code, found) == (0, [])
        assert any("was reported as lost" in each for each in remarks) is bool(option)


def test_verify_says_what_no_check_shows(run, original):
    code, out, _ = run("verify", "--data", str(original))
    assert code == 0
    *remarks, last = out.splitlines()
    assert last == "Nothing is damaged or missing."
    for what in (
        "cursors",
        "idempotency keys",
        "marks",
        "nakadi.audit.log",
        "refused requests",
        "cosignatures",
        "events",
    ):
        assert any(each.startswith("Remark: not covered by the log: ") and what in each for each in remarks), what


READ_ONLY = [words for words in READING if words[0] not in {"backup", "accept-loss"}]


@pytest.mark.parametrize("words", READ_ONLY, ids=" ".join)
def test_what_only_reads_leaves_the_directory_as_it_is(run, original, tmp_path, words):
    """So it works on a read-only file system as well."""
    data, _ = copied(original, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (data, *data.rglob("*"))}
    code, _, err = run(*words, "--data", str(data))
    assert code == 0, err
    assert {path: path.stat().st_mtime_ns for path in (data, *data.rglob("*"))} == before
