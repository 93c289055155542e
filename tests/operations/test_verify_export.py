"""Exports are verified by a file that needs the standard library alone, and forged ones are refused."""

import ast
import contextlib
import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rioni.commands.system.storages import AddBlacklistEntry
from rioni.config.settings import Config
from rioni.domain.errors import Conflict, Unavailable
from rioni.domain.transparency.checkpoint import Note, parse_note, sign, verifier_of
from rioni.installation.infrastructure import build_infrastructure
from rioni.operations import verify_export
from rioni.operations.checkpoints import export
from rioni.projections.queries.audit_log import AuditFilter
from rioni.server.log_tree import build_checkpoint_signer
from rioni.server.startup import prepare_startup


OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
CHOSEN = AuditFilter(resource="settings:settings", actor="rioni")


def silent(_phase: str, _done: int, _total: int) -> None:
    """Show no progress."""


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an export of the whole log, one of some entries, and the verifier key."""
    folder = tmp_path_factory.mktemp("exports")
    config = Config(data=folder / "data")
    with prepare_startup(config) as directory, contextlib.closing(build_infrastructure(config, directory)) as base:
        for number in range(20):
            command = AddBlacklistEntry(type="CONSUMER_APP", name=f"straße-{number}")
            base.bus.dispatch(command, base.system_context())
        (folder / "key").write_text(str(build_checkpoint_signer(base).verifier()))
    assert export(config, folder / "all", AuditFilter(), silent) == (22, 22)
    assert export(config, folder / "some", CHOSEN, silent) == (20, 22)
    with pytest.raises(Conflict, match="not an empty folder"):
        export(config, folder / "all", AuditFilter(), silent)
    return folder


@pytest.fixture(params=["all", "some"])
def exported(request: pytest.FixtureRequest, exports: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exports / request.param, tmp_path / "export"))


def key_of(exports: Path) -> str:
    return (exports / "key").read_text()


def repaired(folder: Path) -> None:
    """Let the manifest name the files as they are now, as a forger would."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in manifest["files"]:
        manifest["files"][name] = verify_export.sha256((folder / name).read_bytes()).hex()
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("size", [0, 500, 5_000])
def test_an_export_for_which_there_is_no_room_leaves_nothing(exports, tmp_path, size):
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        with pytest.raises(Unavailable, match=r"export can't be written: File too large\. Check disk space"):
            export(Config(data=exports / "data"), tmp_path / "export", AuditFilter(), silent)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert list(tmp_path.iterdir()) == []


def test_an_export_below_a_file_is_refused(exports, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="can't be written: "):
        export(Config(data=exports / "data"), tmp_path / "file" / "export", AuditFilter(), silent)


def test_an_export_is_verified_by_the_standard_library_alone(exported, exports):
    """`-I -S` leaves out all installed packages."""
    command = [sys.executable, "-I", "-S", str(exported / "verify_export.py"), str(exported), "--key", key_of(exports)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "of 22 entries, as its checkpoint says" in done.stdout
    assert "signature was NOT checked" in done.stdout


def test_it_imports_nothing_else():
    tree = ast.parse(Path(verify_export.__file__).read_text())
    names = {
        (each.names[0].name if isinstance(each, ast.Import) else each.module or "").partition(".")[0]
        for each in ast.walk(tree)
        if isinstance(each, ast.Import | ast.ImportFrom)
    }
    assert names - sys.stdlib_module_names == {"cryptography", "pyarrow"}


def test_signatures_are_verified_where_that_is_possible(exported, exports, capsys):
    assert verify_export.main([str(exported), "--key", key_of(exports)]) == 0
    assert "signed by the key that you gave" in capsys.readouterr().out
    assert verify_export.main([str(exported)]) == 0
    assert "give the one that you trust" in capsys.readouterr().out
    assert verify_export.main([str(exported), "--key", str(verifier_of("other", OTHER))]) == 1
    assert "not signed by other" in capsys.readouterr().out


def test_a_checkpoint_that_another_key_signed_is_refused(exported, exports, capsys):
    note = parse_note((exported / "checkpoint").read_bytes())
    name = note.signatures[0].name
    (exported / "checkpoint").write_text(str(Note(note.text, (sign(note.text, name, OTHER),))))
    repaired(exported)
    assert verify_export.main([str(exported), "--key", key_of(exports)]) == 1
    forged = note.signatures[0]._replace(data=bytes(64))
    (exported / "checkpoint").write_text(str(Note(note.text, (forged,))))
    repaired(exported)
    assert verify_export.main([str(exported), "--key", key_of(exports)]) == 1
    assert "signature of the checkpoint is not valid" in capsys.readouterr().out


def test_every_changed_member_of_every_entry_is_found(exported, exports):
    lines = (exported / "entries.jsonl").read_text().splitlines()
    for number, line in enumerate(lines):
        for name, value in json.loads(line).items():
            entry = json.loads(line)
            if name == "proof":
                entry[name] = value[:-1]
            else:
                entry[name] = value + 1 if isinstance(value, int) else "f" * len(value or "x")
            changed = [*lines[:number], json.dumps(entry), *lines[number + 1 :]]
            (exported / "entries.jsonl").write_text("\n".join(changed) + "\n")
            repaired(exported)
            assert verify_export.main([str(exported), "--key", key_of(exports)]) in {1, 2}, (number, name)


@pytest.mark.parametrize("change", ["first", "last", "order", "twice", "empty"])
def test_missing_exchanged_and_repeated_entries_are_found(exported, exports, change):
    lines = (exported / "entries.jsonl").read_text().splitlines()
    changed = {
        "first": lines[1:],
        "last": lines[:-1],
        "order": [lines[1], lines[0], *lines[2:]],
        "twice": [lines[0], *lines],
        "empty": [],
    }[change]
    (exported / "entries.jsonl").write_text("".join(f"{line}\n" for line in changed))
    repaired(exported)
    assert verify_export.main([str(exported), "--key", key_of(exports)]) == 1


@pytest.mark.parametrize("name", [*verify_export.HASHED_FILES, "manifest.json"])
def test_a_missing_or_exchanged_file_is_found(exported, exports, name):
    original = (exported / name).read_bytes()
    (exported / name).write_bytes(original + b"x")
    assert verify_export.main([str(exported), "--key", key_of(exports)]) in {1, 2}
    (exported / name).unlink()
    assert verify_export.main([str(exported), "--key", key_of(exports)]) == 2


@pytest.mark.parametrize("member", ["format", "origin", "size", "root", "complete", "entries"])
def test_a_changed_manifest_is_found(exported, exports, member):
    manifest = json.loads((exported / "manifest.json").read_text())
    value = manifest[member]
    manifest[member] = (not value) if isinstance(value, bool) else value + 1 if isinstance(value, int) else f"{value}0"
    (exported / "manifest.json").write_text(json.dumps(manifest))
    assert verify_export.main([str(exported), "--key", key_of(exports)]) == 1


def test_an_export_extends_the_checkpoints_that_were_seen(exports, tmp_path):
    whole, seen = exports / "all", tmp_path / "seen"
    shutil.copyfile(whole / "checkpoint", seen)
    assert "The log extends the checkpoints that you gave." in list(
        verify_export.verify(whole, key_of(exports), [seen])
    )
    for forged in (seen.read_text().replace("\n22\n", "\n21\n"), seen.read_text().replace("\n22\n", "\n23\n")):
        seen.write_text(forged)
        with pytest.raises(verify_export.Finding, match="does not extend the checkpoint"):
            list(verify_export.verify(whole, None, [seen]))
    with pytest.raises(verify_export.Finding, match="only an export of the whole log"):
        list(verify_export.verify(exports / "some", None, [seen]))
