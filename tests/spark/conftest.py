"""A broker, and a session of Spark that knows the formats."""

import pytest

from rioni.spark import register
from tests.support.campaigns import NIGHTLY
from tests.support.server import running_server


# They start Spark several times. `test_writer.py` kills tasks; `test_stream_reader.py` has a query that fails between
# storing and its checkpoint.
collect_ignore = [] if NIGHTLY else ["test_stream_reader_kill.py", "test_writer_kill.py"]


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("data"), "--workers", "1") as running:
        yield running


@pytest.fixture
def client(server):
    with server.client() as opened:
        yield opened


@pytest.fixture(scope="package")
def registered(spark):
    register(spark)
    return spark


@pytest.fixture
def read(registered, server):
    """Reads with the format `rioni`."""

    def read(event_type: str, **options):
        options = {name.removesuffix("_"): value for name, value in options.items()}
        return registered.read.format("rioni").options(url=server.url, event_type=event_type, **options).load()

    return read
