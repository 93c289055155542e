"""A migrated data directory takes no events: whatever would write there says where everything is now."""

import pytest

from rioni.config.settings import Config
from rioni.installation.acceptance import accept_loss
from rioni.operations.backup import backup
from rioni.operations.restore import restore
from rioni.server.startup import prepare_startup
from rioni.storage.embedded.data_directory import DataDirectoryError, MigrationMark, read_mark, write_mark
from tests.installation.test_stores import create, publish, running
from tests.operations.test_backup import silent
from tests.support.verification import findings


MARK = MigrationMark(
    cluster="the cluster with Kafka at k:9092",
    complete=True,
    migrated_at="2026-01-02T03:04:05Z",
    position=1,
    hash="00",
    events=1,
    subscriptions=0,
)


@pytest.fixture
def data(tmp_path):
    with running(tmp_path / "data") as base:
        create(base)
        publish(base)
    backup(Config(data=tmp_path / "data"), tmp_path / "backup", silent)
    return tmp_path / "data"


@pytest.mark.parametrize(
    "content", [None, b"", b"{}", b"\x00" * 10], ids=["complete", "empty", "without members", "zeros"]
)
def test_nothing_writes_to_a_migrated_directory(data, tmp_path, content):
    write_mark(data, MARK)
    if content is not None:
        (data / "migrated.json").write_bytes(content)
    said = "migrated to the cluster with Kafka at k:9092" if content is None else "was migrated to a cluster"
    config = Config(data=data)
    for use in (
        lambda: prepare_startup(config).__enter__(),
        lambda: accept_loss(config, "test"),
        lambda: restore(tmp_path / "backup", data, silent, accept_lost_events=True),
    ):
        with pytest.raises(DataDirectoryError, match=said) as refused:
            use()
        assert "migrated.json" in str(refused.value)


def test_a_migrated_directory_can_still_be_read_and_used_again_without_the_mark(data, tmp_path):
    write_mark(data, MARK)
    assert read_mark(data) == MARK
    assert findings(data) == []
    backup(Config(data=data), tmp_path / "backup", silent)
    (data / "migrated.json").unlink()
    with running(data) as base:
        publish(base)
