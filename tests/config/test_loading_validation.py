import pytest

from rioni.config.loading import load
from rioni.config.settings import ConfigError


KAFKA = {"RIONI_KAFKA": "kafka:9092"}
ZOOKEEPER = {"RIONI_ZOOKEEPER": "zookeeper:2181"}
POSTGRESQL = {"RIONI_DATABASE": "postgresql://rioni@postgres/rioni"}
SQLITE = {"RIONI_DATABASE": "sqlite:///registry.db"}


@pytest.mark.parametrize(
    "environ",
    [{}, KAFKA, POSTGRESQL, SQLITE, KAFKA | POSTGRESQL],
    ids=["all in the data directory", "Kafka", "PostgreSQL", "SQLite elsewhere", "Kafka and PostgreSQL"],
)
def test_a_single_node_may_use_any_storage(environ):
    assert not load(environ=environ).config.clustered


def test_several_nodes_share_everything():
    assert load(environ=ZOOKEEPER | KAFKA | POSTGRESQL).config.clustered


@pytest.mark.parametrize(
    ("environ", "lacking"),
    [
        (ZOOKEEPER, ["Kafka", "PostgreSQL"]),
        (ZOOKEEPER | KAFKA, ["PostgreSQL"]),
        (ZOOKEEPER | KAFKA | SQLITE, ["PostgreSQL"]),
        (ZOOKEEPER | POSTGRESQL, ["Kafka"]),
    ],
    ids=["ZooKeeper alone", "no registry", "a registry that only one node can use", "no place for events"],
)
def test_several_nodes_do_not_start_without_shared_services(environ, lacking):
    with pytest.raises(ConfigError) as caught:
        load(environ=environ)
    assert [each for each in ("Kafka", "PostgreSQL") if f"which need {each}" in str(caught.value)] == lacking
    assert "or leave zookeeper out" in str(caught.value)
