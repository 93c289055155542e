"""A pipe, socket, device, folder or dangling link instead of a file is named in one line, and no command hangs."""

import pytest

from rioni.cli.app import app
from tests.files.test_plain import KINDS
from tests.support.command_tree import leaves


COMMANDS = {words: each for words, each in leaves(app).items() if any("--data" in one.opts for one in each.params)}
FURTHER = {
    ("accept-loss",): ["--reason", "test"],
    ("backup",): ["--to", "backup"],
    ("migrate",): ["--to", "cluster.toml"],
    ("rebuild",): ["--dry-run"],
    ("restore",): ["--from", "good"],
    ("audit", "consistency"): ["some.checkpoint"],
    ("audit", "diff"): ["--from", "1"],
    ("audit", "export"): ["--to", "export"],
    ("audit", "log"): ["storage:default"],
    ("audit", "prove"): ["1"],
    ("audit", "show"): ["default"],
    ("projections", "promote"): ["green"],
    ("projections", "drop"): ["green"],
}
"""Arguments of commands that must have some."""
FILES = [
    "registry.db",
    "events.db",
    "coordination.db",
    "format",
    "lock",
    "log-signing.key",
    "registry.db-wal",
    "jobs.db",
]
OF_DOCTOR = {("doctor",)}
"""Finds what is wrong with files, and goes on."""

pytestmark = pytest.mark.timeout(60)


def put(kind, path):
    """Put something else in the place of a file."""
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
    else:
        KINDS[kind](path)


def check_one_line(done, name):
    code, _, err = done
    assert code == 2, done
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    assert last.startswith("Error: "), err
    assert name in last


@pytest.mark.parametrize("words", sorted(COMMANDS.keys() - OF_DOCTOR), ids=" ".join)
def test_every_command_refuses_it(run, data, tmp_path, words):
    (tmp_path / "cluster.toml").write_text("")
    for kind in KINDS:
        if (*words, kind) == ("restore", "link"):
            continue  # it replaces the link
        put(kind, tmp_path / "data/registry.db")
        check_one_line(run(*words, *FURTHER.get(words, ()), "--data", "data"), "registry.db")


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_looked_at(run, data, tmp_path, name):
    for kind in KINDS:
        put(kind, tmp_path / "data" / name)
        for words in ("verify", "serve"):
            check_one_line(run(words, "--data", "data"), name)


READS_IT_FIRST = COMMANDS.keys() - {
    *OF_DOCTOR,
    ("serve",),
    ("demo",),
    ("migrate",),
    ("restore",),
    ("audit", "consistency"),
}


@pytest.mark.parametrize("words", sorted(READS_IT_FIRST), ids=" ".join)
def test_a_folder_in_place_of_the_registry_is_named(run, data, tmp_path, words):
    put("folder", tmp_path / "data/registry.db")
    code, out, err = run(*words, *FURTHER.get(words, ()), "--data", "data")
    assert code == (1 if words == ("verify",) else 2), (out, err)
    assert "Traceback" not in err
    assert "registry.db" in (out + err)


@pytest.mark.parametrize("words", [*sorted(COMMANDS.keys() - OF_DOCTOR), ("archive", "--to", "lake")], ids=" ".join)
def test_a_file_of_settings_is_named(run, tmp_path, words):
    option = "--to" if words == ("migrate",) else "--config"
    further = () if words == ("migrate",) else FURTHER.get(words, ())
    for kind in (*KINDS, "folder"):
        put(kind, tmp_path / "x.toml")
        check_one_line(run(*words, *further, option, "x.toml"), "x.toml")


@pytest.mark.parametrize("kind", [*KINDS, "folder"])
def test_a_file_of_settings_that_is_found_by_itself_is_named(run, tmp_path, kind):
    put(kind, tmp_path / "rioni.toml")
    check_one_line(run("config", "show"), "rioni.toml")


URL = "--url http://127.0.0.1:1"


@pytest.mark.parametrize(
    "command",
    [
        "tokens create --uid jane --file x.file",
        "context list",
        "context use prod",
        f"schemas add orders x.file {URL}",
        f"log cosign x.file {URL}",
        f"event-types create orders --owning-application shop --schema x.file {URL}",
        f"witness --key x.file --state w {URL}",
        f"witness --state x.file {URL}",
        "verify --data data --checkpoint x.file",
        "audit consistency x.file --data data",
    ],
)
def test_a_file_that_an_argument_names_is_named(run, data, tmp_path, monkeypatch, command):
    monkeypatch.setenv("RIONI_CONTEXTS", str(tmp_path / ("x.file" if "context" in command else "contexts.toml")))
    for kind in (*KINDS, "folder"):
        put(kind, tmp_path / "x.file")
        check_one_line(run(*command.split()), "x.file")


@pytest.mark.parametrize("name", ["backup.json", "registry.db", "format"])
def test_a_file_of_a_backup_is_named(run, data, tmp_path, name):
    assert run("backup", "--to", "saved", "--data", "data")[0] == 0
    (found,) = (tmp_path / "saved").rglob(name)
    for kind in (*KINDS, "folder"):
        put(kind, found)
        check_one_line(run("restore", "--from", "saved", "--data", "new"), name)
        assert not (tmp_path / "new/registry.db").exists()
