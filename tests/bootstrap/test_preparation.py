import pytest
from structlog.testing import capture_logs

from rioni.bootstrap.preparation import prepare
from rioni.config import Config


@pytest.mark.parametrize(("kafka", "lines"), [(None, 0), ("a:1", 0), ("b:2,a:1", 0), ("a:1,c:3", 1), ("c:3", 1)])
def test_brokers_that_no_table_of_options_names_are_warned_of(tmp_path, kafka, lines):
    path = tmp_path / "kafka.toml"
    path.write_text('["a:1,b:2"]\nsecurity.protocol = "SSL"')
    with capture_logs() as logged, prepare(Config(data=tmp_path / "data", kafka=kafka, kafka_options=path)):
        pass
    assert [line["kafka"] for line in logged] == [kafka] * lines
