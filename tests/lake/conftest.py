"""A broker whose retention runs often, and a lake of each format."""

import pytest

from rioni.client import Client
from tests.support.lake import FORMATS, ArchiveUnderTest
from tests.support.server import running_server


OFTEN = {"RIONI_RETENTION_INTERVAL_S": "1", "RIONI_RETENTION_MIN_MS": "1"}


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("data"), "--workers", "1", environment=OFTEN) as running:
        yield running


@pytest.fixture
def client(server):
    with server.client() as opened:
        yield opened


@pytest.fixture
def broker(server):
    """The product's client of the broker."""
    with Client(server.url) as opened:
        yield opened


@pytest.fixture(params=FORMATS)
def lake(request, server, tmp_path):
    """An archive of each format in a folder."""
    return ArchiveUnderTest(url=server.url, to=str(tmp_path / "lake"), format_=request.param)
