import re
import sys

import pytest

from rioni.domain.errors import Unavailable
from rioni.domain.system.storages import StorageEntry
from rioni.files.extras import requirement
from rioni.storage.kafka.client import KafkaConnection, connection_of
from rioni.storage.kafka.factory import opener


@pytest.mark.parametrize(
    ("configuration", "default", "expected"),
    [
        ({}, "a:1", KafkaConnection(bootstrap_servers="a:1")),
        ({"bootstrap_servers": "b:2"}, "a:1", KafkaConnection(bootstrap_servers="b:2")),
        ({"zk_address": "z:3"}, "a:1", KafkaConnection(bootstrap_servers="a:1")),
        (
            {"bootstrap_servers": "b:2", "topic_prefix": "p-", "replication_factor": 3, "min_insync_replicas": 2},
            None,
            KafkaConnection(bootstrap_servers="b:2", topic_prefix="p-", replication_factor=3, min_insync_replicas=2),
        ),
    ],
)
def test_brokers_are_named_by_the_storage_or_by_the_setting(configuration, default, expected):
    assert connection_of(configuration, default) == expected


@pytest.mark.parametrize(
    "configuration",
    [
        {},
        {"bootstrap_servers": 7},
        {"bootstrap_servers": "a:1", "topic_prefix": []},
        {"bootstrap_servers": "a:1", "replication_factor": 0},
        {"bootstrap_servers": "a:1", "replication_factor": 2, "min_insync_replicas": 3},
    ],
)
def test_the_error_of_an_unusable_storage_says_what_it_needs(configuration):
    storage = StorageEntry(id="k", storage_type="kafka", default=False, configuration=configuration)
    with pytest.raises(Unavailable, match="needs bootstrap_servers"):
        opener(None, database="")(storage)


def test_without_the_driver_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    storage = StorageEntry(id="k", storage_type="kafka", default=False)
    with pytest.raises(Unavailable, match=f"The storage k needs .* pip install {re.escape(requirement('cluster'))}"):
        opener("a:1", database="")(storage)
