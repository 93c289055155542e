"""Every byte of an export, changed; and manifests that a forger computes again: `verify_export.py` refuses them."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rioni.commands.system.storages import AddBlacklistEntry
from rioni.config.settings import Config
from rioni.domain.transparency.checkpoint import Note, parse_note, sign, verifier_of
from rioni.files.signing_key import load_key
from rioni.installation.infrastructure import build_infrastructure
from rioni.operations import verify_export
from rioni.operations.checkpoints import export
from rioni.projections.queries.audit_log import AuditFilter
from rioni.server.log_tree import build_checkpoint_signer
from rioni.server.startup import prepare_startup


OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))


class Export:
    """An export, the key to verify it with, and the signing key."""

    def __init__(self, folder: Path, key: Ed25519PrivateKey) -> None:
        self.folder, self.private = folder, key
        self.note = parse_note((folder / "checkpoint").read_bytes())
        self.origin = self.note.text.partition("\n")[0]
        self.key = str(verifier_of(self.origin, key))

    def refused(self, key: str | None = None) -> bool:
        """Whether it is refused."""
        try:
            list(verify_export.verify(self.folder, key or self.key))
        except (verify_export.Finding, OSError, ValueError, TypeError, AttributeError):  # as `main` reports them
            return True
        return False

    def repair(self) -> None:
        """Let the manifest name the files as they are now."""
        manifest = json.loads((self.folder / "manifest.json").read_bytes())
        for name in manifest["files"]:
            manifest["files"][name] = verify_export.sha256((self.folder / name).read_bytes()).hex()
        manifest["entries"] = len((self.folder / "entries.jsonl").read_bytes().splitlines())
        (self.folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an export of the whole log, one of some entries, and the signing key."""
    folder = tmp_path_factory.mktemp("exports")
    config = Config(data=folder / "data")
    with prepare_startup(config) as directory, contextlib.closing(build_infrastructure(config, directory)) as base:
        for number in range(4):
            command = AddBlacklistEntry(type="CONSUMER_APP", name=f"straße-{number}")
            base.bus.dispatch(command, base.system_context())
        build_checkpoint_signer(base).verifier()
    for name, wanted in (("all", AuditFilter()), ("some", AuditFilter(resource="settings:settings"))):
        export(config, folder / name, wanted, lambda *_: None)
    return folder


@pytest.fixture(params=["all", "some"])
def exported(request: pytest.FixtureRequest, originals: Path, tmp_path: Path) -> Export:
    folder = Path(shutil.copytree(originals / request.param, tmp_path / "export"))
    return Export(folder, load_key(originals / "data" / "log-signing.key"))


def flips(data: bytes) -> Iterator[bytes]:
    """The data with one bit of one byte changed, for each byte."""
    for at in range(len(data)):
        yield data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]


@pytest.mark.parametrize("name", [*verify_export.HASHED_FILES, "manifest.json"])
def test_every_changed_byte_is_found(exported, name):
    path = exported.folder / name
    original = path.read_bytes()
    assert not exported.refused()
    for at, changed in enumerate(flips(original)):
        path.write_bytes(changed)
        assert exported.refused(), (at, original[at - 20 : at + 20])
    path.unlink()
    assert exported.refused()


@pytest.mark.parametrize("name", ["checkpoint", "entries.jsonl"])
def test_every_changed_byte_is_found_though_the_manifest_was_computed_again(exported, name):
    path = exported.folder / name
    original = path.read_bytes()
    entries = [json.loads(line) for line in original.splitlines()] if name == "entries.jsonl" else []
    for at, changed in enumerate(flips(original)):
        path.write_bytes(changed)
        exported.repair()
        if not exported.refused():
            # Only what means the same is accepted, such as another white space.
            assert [json.loads(line) for line in changed.splitlines()] == entries, (at, original[at - 20 : at + 20])


def test_every_removed_repeated_and_exchanged_line_is_found(exported):
    path = exported.folder / "entries.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    manifest = (exported.folder / "manifest.json").read_bytes()
    complete = json.loads(manifest)["complete"]
    for at, line in enumerate(lines):
        forged = {
            "removed": [*lines[:at], *lines[at + 1 :]],
            "cut": lines[:at],
            "repeated": [*lines[: at + 1], *lines[at:]],
            "repeated at the end": [*lines, line],
            "exchanged": [*lines[:at], *lines[at + 1 : at + 2], line, *lines[at + 2 :]],
            "empty line": [*lines[:at], b"\n", *lines[at:]],
        }
        for name, changed in forged.items():
            path.write_bytes(b"".join(changed))
            (exported.folder / "manifest.json").write_bytes(manifest)
            assert exported.refused() or changed == lines, (at, name)
            exported.repair()
            if complete or name not in {"removed", "cut"}:  # of some entries others may be left out
                assert exported.refused() or changed == lines, (at, name)


def test_checkpoints_of_other_keys_and_of_other_logs_are_refused(exported):
    (right,) = exported.note.signatures
    wrong = sign(exported.note.text, exported.origin, OTHER)
    renamed = sign(exported.note.text, "example.com/other", exported.private)
    forged = {
        "another key of the same name": (wrong,),
        "the id of the right key": (wrong._replace(id=right.id),),
        "another name of the same key": (renamed,),
        "empty": (right._replace(data=b"\0"),),
    }
    for bit in range(8 * len(right.data)):
        data = bytearray(right.data)
        data[bit // 8] ^= 1 << bit % 8
        forged[f"bit {bit}"] = (right._replace(data=bytes(data)),)
    for name, signatures in forged.items():
        (exported.folder / "checkpoint").write_text(str(Note(exported.note.text, signatures)))
        exported.repair()
        assert exported.refused(), name
    (exported.folder / "checkpoint").write_text(f"{exported.note.text}\n")
    exported.repair()
    assert exported.refused()
    (exported.folder / "checkpoint").write_text(str(Note(exported.note.text, (renamed,))))
    exported.repair()
    assert exported.refused(str(verifier_of("example.com/other", exported.private)))


@pytest.mark.parametrize("change", [
    lambda line: line.replace(b'"version":', b'"version":"', 1).replace(b',"topic"', b'","topic"', 1),
    lambda line: line.replace(b'{"position"', b'{"actor":"forged","position"'),
    lambda line: line.replace(b'{"position"', b'{"comment":"forged","position"'),
    lambda line: line.replace(b'{"position"', b'{"previous":"00","proof":[],"previous":"","position"'),
], ids=["type", "member twice", "member of its own", "proof twice"])  # fmt: skip
def test_entries_that_other_programs_would_read_differently_are_refused(exported, change):
    path = exported.folder / "entries.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([change(lines[0]), *lines[1:]]))
    assert path.read_bytes() != b"".join(lines)
    exported.repair()
    assert exported.refused()
