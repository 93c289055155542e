"""Nobody but the owner may read what a broker stores, whatever the umask and the mode of the data directory are."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rioni.config.settings import Config
from rioni.installation.acceptance import accept_loss
from rioni.operations.backup import backup
from rioni.operations.checkpoints import rotate_key
from rioni.operations.restore import restore
from rioni.server.log_tree import build_checkpoint_signer
from tests.installation.test_stores import create, publish, running
from tests.operations.test_backup import silent
from tests.support.server import running_server


UMASKS = (0o000, 0o022, 0o027, 0o077, 0o277)
MODES = (None, 0o700, 0o755, 0o777)


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(folder: Path) -> dict[str, str]:
    """The files and folders below a folder that are not private, with their modes."""
    modes = {path: path.lstat().st_mode for path in folder.rglob("*")}
    return {
        str(path.relative_to(folder)): stat.filemode(mode)
        for path, mode in modes.items()
        if stat.S_IMODE(mode) != (0o700 if stat.S_ISDIR(mode) else 0o600)
    }


def serve(data: Path) -> None:
    program = ["-m", "rioni"]
    with running_server(data, "--workers", "2", program=program) as server, server.client() as client:
        body = {"name": "a", "owning_application": "x", "category": "undefined"}
        assert client.post("/event-types", json=body | {"schema": {"type": "json_schema", "schema": "{}"}}).is_success
        assert client.post("/event-types/a/events", json=[{}]).is_success
        assert client.get("/jobs").is_success
        assert client.get("/log/checkpoint").is_success
        assert not open_to_others(data)


def use(data: Path) -> None:
    with running(data) as base:
        create(base)
        publish(base)
        build_checkpoint_signer(base).checkpoint()
        base.adapters.signals.watch(["key"]).close()
        assert not open_to_others(data)


def back_up(data: Path) -> None:
    use(data)
    for _ in range(2):
        backup(Config(data=data), data.parent / "backup", silent)
        assert not open_to_others(data.parent / "backup")


def restore_twice(data: Path) -> None:
    back_up(data)
    restore(data.parent / "backup", data, silent, accept_lost_events=True)
    restore(data.parent / "backup", data.parent / "new", silent)
    assert not open_to_others(data.parent / "new")


def accept(data: Path) -> None:
    use(data)
    (data / "events.db").unlink()
    assert accept_loss(Config(data=data), "test")


def rotate(data: Path) -> None:
    use(data)
    rotate_key(Config(data=data), lost=False)


COMMANDS: tuple[Callable[[Path], None], ...] = (use, back_up, restore_twice, accept, rotate)


@pytest.mark.parametrize("mask", UMASKS, ids=oct)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: "new" if mode is None else oct(mode))
def test_every_file_that_a_command_makes_is_private(tmp_path, mask, mode):
    for command in COMMANDS:
        data = tmp_path / command.__name__ / "data"
        data.parent.mkdir()
        if mode is not None:
            data.mkdir()
            data.chmod(mode)
        with umask(mask):
            command(data)
        assert not open_to_others(data), command.__name__


@pytest.mark.parametrize("mask", [0o000, 0o022], ids=oct)
def test_every_file_of_a_server_is_private_in_an_open_directory(tmp_path, mask):
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    with umask(mask):
        serve(data)
    assert not open_to_others(data)


def test_a_start_takes_the_rights_of_others_on_files_of_earlier_versions_and_on_no_others(tmp_path):
    data = tmp_path / "data"
    use(data)
    (data / "my-tokens.json").touch()
    (tmp_path / "elsewhere").touch()
    (data / "events.db-link").symlink_to(tmp_path / "elsewhere")
    for path in (*data.rglob("*"), tmp_path / "elsewhere"):
        if path.name != "log-signing.key" and not path.is_symlink():
            path.chmod(0o777 if path.is_dir() else 0o666)
    with running(data):
        pass
    (data / "events.db-link").unlink()
    assert open_to_others(data) == {"my-tokens.json": "-rw-rw-rw-"}
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o666
