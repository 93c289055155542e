"""The key that signs checkpoints is replaced by one that it has signed; auditors who trust it accept the new one."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from rioni.commands.system.checkpoint_signer import AddLogKey
from rioni.config.settings import Config
from rioni.domain.errors import Conflict, NotFound, Unavailable
from rioni.domain.transparency.checkpoint import Note, Verifier, parse_checkpoint, verified, verifier_of
from rioni.files.signing_key import load_key
from rioni.installation.from_config import key_file
from rioni.installation.infrastructure import build_infrastructure
from rioni.operations import verify_export
from rioni.operations.checkpoints import checkpoint, export, rotate_key
from rioni.projections.queries.audit_log import AuditFilter
from rioni.server.log_tree import build_checkpoint_signer
from rioni.server.startup import prepare_startup
from tests.support.verification import problems


class Broker:
    """One that was asked for a checkpoint, and its first key."""

    def __init__(self, data: Path, base) -> None:
        self.config, self.base = Config(data=data), base
        self.first = self.verifier()

    def sign(self, **settings) -> Note:
        base = self.base
        return build_checkpoint_signer(base._replace(config=Config(data=self.config.data, **settings))).checkpoint()

    def verifier(self) -> Verifier:
        """The key of the file, after it has signed."""
        name = parse_checkpoint(self.sign().text).origin
        return verifier_of(name, load_key(key_file(self.config)))

    def findings(self, trusted: Verifier | None, file: Path) -> list[str]:
        """Sign a checkpoint; returns the findings of `rioni verify` about it."""
        file.write_text(str(self.sign()))
        key = None if trusted is None else str(trusted)
        found = problems(self.config, checkpoints=[file], key=key)
        return [str(each) for each in found if each.store in {"log", "checkpoints"}]


@pytest.fixture
def broker(tmp_path):
    config = Config(data=tmp_path / "data")
    with prepare_startup(config) as directory, contextlib.closing(build_infrastructure(config, directory)) as base:
        yield Broker(config.data, base)


def test_a_rotated_key_signs_without_a_restart_and_is_trusted_by_those_who_trust_the_one_before(broker, tmp_path):
    """Reference transparency-log#rotation-of-the-key."""
    keys = [broker.first]
    for _ in range(2):
        keys.append(rotate_key(broker.config, lost=False))
        assert list(verified(broker.sign(), keys)) == keys[-1:]
        assert verified(checkpoint(broker.config), keys[-1:])
    for key in (None, *keys):
        assert broker.findings(key, tmp_path / "seen") == []
    export(broker.config, tmp_path / "export", AuditFilter(), lambda *_: None)
    for key in (None, *map(str, keys)):
        assert any("signed by" in each for each in verify_export.verify(tmp_path / "export", key))


def test_a_key_that_replaces_a_lost_one_is_trusted_by_those_alone_who_are_told(broker, tmp_path):
    """Reference transparency-log#rotation-of-the-key."""
    key_file(broker.config).unlink()
    with pytest.raises(Conflict, match="is lost: --lost"):
        rotate_key(broker.config, lost=False)
    new = rotate_key(broker.config, lost=True)
    assert list(verified(broker.sign(), [broker.first, new])) == [new]
    assert broker.findings(new, tmp_path / "seen") == broker.findings(None, tmp_path / "seen") == []
    (found,) = broker.findings(broker.first, tmp_path / "seen")
    assert "no known key has signed this checkpoint" in found
    export(broker.config, tmp_path / "export", AuditFilter(), lambda *_: None)
    with pytest.raises(verify_export.Finding, match="is not signed by"):
        list(verify_export.verify(tmp_path / "export", str(broker.first)))


def test_a_key_that_the_log_does_not_know_signs_nothing(broker):
    """Such is the key of a node of a cluster whose key file was not copied."""
    first = key_file(broker.config).read_bytes()
    key_file(broker.config).unlink()
    with pytest.raises(Unavailable, match="is missing"):
        broker.sign()
    load_key(key_file(broker.config))
    with pytest.raises(Unavailable, match="names another signing key"):
        broker.sign()
    key_file(broker.config).write_bytes(first)
    rotate_key(broker.config, lost=False)
    broker.sign()
    rotated = key_file(broker.config).read_bytes()
    key_file(broker.config).write_bytes(first)
    with pytest.raises(Unavailable, match="earlier signing key"):
        broker.sign()
    with pytest.raises(Conflict, match="is not the key that the log names"):
        rotate_key(broker.config, lost=False)
    key_file(broker.config).write_bytes(rotated)
    with pytest.raises(Unavailable, match="setting log_origin can't be changed"):
        broker.sign(log_origin="example.com/log")


def test_a_key_that_has_not_signed_yet_is_not_rotated_again(broker):
    rotate_key(broker.config, lost=False)
    with pytest.raises(Conflict, match="has not used yet"):
        rotate_key(broker.config, lost=False)


def test_a_log_without_a_key_has_none_to_rotate(tmp_path):
    config = Config(data=tmp_path / "data")
    with prepare_startup(config) as directory, contextlib.closing(build_infrastructure(config, directory)):
        pass
    with pytest.raises(NotFound, match="no signing key yet"):
        rotate_key(config, lost=False)


def test_a_command_without_a_valid_signature_changes_nothing(broker):
    other = str(broker.first._replace(key=bytes(32)))
    for command in (
        AddLogKey(verifier=other),
        AddLogKey(verifier=other, signature="text"),
        AddLogKey(verifier=other, lost=other),
    ):
        with pytest.raises(Conflict, match="has not signed this one"):
            broker.base.bus.dispatch(command, broker.base.system_context())
    assert verified(broker.sign(), [broker.first])


def test_a_wrong_signature_in_the_log_is_found(broker, tmp_path):
    rotate_key(broker.config, lost=False)
    broker.sign()
    with sqlite3.connect(broker.config.data / "registry.db") as connection:
        connection.execute('UPDATE states SET state = replace(state, \'"signature":"— \', \'"signature":"— x\')')
    connection.close()
    assert any("signing keys: " in each for each in broker.findings(None, tmp_path / "seen"))
