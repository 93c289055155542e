import logging
from contextlib import closing

import pytest

from rioni.cli.cluster.servers import free_ports
from rioni.domain.errors import Unavailable
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.zookeeper.driver import REPEATED_AFTER_S, NotAgain
from rioni.storage.zookeeper.factory import open_shared


def test_an_unreachable_server_is_logged_once(tmp_path, caplog):
    (port,) = free_ports(1)
    with closing(EmbeddedSignals(tmp_path)) as local, pytest.raises(Unavailable):
        open_shared(f"127.0.0.1:{port}", local, session_timeout_s=1)
    said = [record.getMessage() for record in caplog.records if record.name == "rioni.zookeeper.driver"]
    assert len(said) == len(set(said))


def test_a_log_message_may_be_repeated_after_a_while():
    quiet = NotAgain()

    def says(text: str, time_s: float) -> bool:
        record = logging.makeLogRecord({"msg": text, "created": time_s})
        return bool(quiet.filter(record))

    assert says("refused", 1_000.0)
    assert not says("refused", 1_000.0 + REPEATED_AFTER_S - 1)
    assert says("dropped", 1_000.0 + REPEATED_AFTER_S - 1)
    assert says("refused", 1_000.0 + REPEATED_AFTER_S)
