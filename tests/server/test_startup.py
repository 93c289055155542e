from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from rioni.config.settings import Config
from rioni.domain.errors import Unavailable
from rioni.server.startup import prepare_startup


@pytest.mark.parametrize(("kafka", "lines"), [(None, 0), ("a:1", 0), ("b:2,a:1", 0), ("a:1,c:3", 1), ("c:3", 1)])
def test_kafka_brokers_without_a_table_of_options_are_warned_of(tmp_path, kafka, lines):
    path = tmp_path / "kafka.toml"
    path.write_text('["a:1,b:2"]\nsecurity.protocol = "SSL"')
    with capture_logs() as logged, prepare_startup(Config(data=tmp_path / "data", kafka=kafka, kafka_options=path)):
        pass
    assert [line["kafka"] for line in logged] == [kafka] * lines


@pytest.mark.postgres
@pytest.mark.zookeeper
def test_two_clusters_on_one_path_of_zookeeper_are_rejected(tmp_path, postgres_url, zookeeper_cluster):
    where = f"{zookeeper_cluster.zookeeper}/{uuid4()}"

    def node(name, database):
        return Config(data=tmp_path / name, database=database, kafka="127.0.0.1:1", zookeeper=where)

    first, second = postgres_url(), postgres_url()
    for name in ("one", "another"):
        with prepare_startup(node(name, first)):
            pass
    with pytest.raises(Unavailable, match="belongs to another installation"), prepare_startup(node("stranger", second)):
        pass
    with prepare_startup(node("one", first)):
        pass
