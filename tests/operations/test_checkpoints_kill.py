"""Operations on the data of a broker, killed at each of their changes: the next run completes, nothing is half done."""

import shutil
from pathlib import Path

import pytest

from rioni.config.settings import Config
from rioni.domain.errors import Conflict, RioniError
from rioni.domain.transparency.checkpoint import Note, verified, verifier_of
from rioni.files.signing_key import load_key
from rioni.installation.acceptance import accept_loss
from rioni.installation.from_config import key_file
from rioni.operations.checkpoints import rotate_key
from rioni.server.log_tree import build_checkpoint_signer
from tests.installation.test_stores import FILES, PARTITION, copy, create, publish, put_back, running
from tests.support.killing import killed_at_each_step
from tests.support.verification import findings


def signed(data: Path) -> Note:
    """The checkpoint that a broker signs when it is started."""
    with running(data) as base:
        return build_checkpoint_signer(base).checkpoint()


@pytest.mark.parametrize("lost", [False, True])
def test_killed_at_any_step_the_signing_key_is_the_old_or_the_new_one_and_no_other_is_left(tmp_path: Path, lost):
    """Reference transparency-log#rotation-of-the-key."""
    origin = tmp_path / "data"
    signed(origin)
    before = key_file(Config(data=origin)).read_bytes()
    found = []

    def run(data: Path) -> None:
        rotate_key(Config(data=data), lost=lost)

    for data in killed_at_each_step(lambda number: shutil.copytree(origin, tmp_path / f"d{number}"), run):
        config = Config(data=data)
        key = key_file(config)
        found.append("old" if key.read_bytes() == before else "new")
        if found[-1] == "old":
            run(data)
        elif not lost:
            # A run that does not know that it was done changes nothing, and says what to do.
            with pytest.raises(Conflict, match="has not used yet"):
                run(data)
        note = signed(data)
        name = note.text.splitlines()[0]
        assert verified(note, [verifier_of(name, load_key(key))])
        assert findings(config) == []
        # The private key of a run that was killed does not stay behind once a run is done.
        run(data)
        assert [path.name for path in data.glob(f"*{key.name}*")] == [key.name]
    assert found == sorted(found, key=["old", "new"].index)
    assert set(found) == {"old", "new"}


@pytest.mark.parametrize("name", ["events.db", "coordination.db", "registry.db"])
def test_killed_at_any_step_a_loss_is_found_again_or_accepted(tmp_path: Path, name):
    """Reference operating/backup: no start takes the stores for consistent before they are."""
    origin = tmp_path / "data"
    with running(origin) as base:
        create(base)
        base.adapters.coordinator.initialise("s", {PARTITION: "001-0001--1"})
        publish(base)
    older = copy(origin, tmp_path / "older")
    with running(origin) as base:
        publish(base)
        create(base, "b")
        base.adapters.coordinator.join("s", "stream")
        base.adapters.coordinator.commit("s", "stream", [(PARTITION, "001-0001-000000000000000015")])
    put_back(older, origin, name)
    assert name in FILES
    found = []

    def run(data: Path) -> None:
        accept_loss(Config(data=data), "the disk died")

    for data in killed_at_each_step(lambda number: shutil.copytree(origin, tmp_path / f"d{number}"), run, 3):
        if findings(data):
            found.append("lost")
            with pytest.raises(RioniError, match="accept-loss"), running(data):
                pass
            run(data)
        else:
            found.append("accepted")
        assert findings(data) == []
        assert accept_loss(Config(data=data), "again") == []
        with running(data) as base:
            publish(base)
            assert base.adapters.coordinator.cursors("s")
        shutil.rmtree(data)
    assert set(found) == {"lost", "accepted"}
