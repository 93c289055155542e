import pytest

from rioni.cli.doctor.diagnosis import Deadline, Scope, Site
from rioni.client import Client


@pytest.fixture
def site(scripted):
    with Client(scripted.url, attempts=1) as client:
        yield Site(scripted.url, client, Scope(interval_s=0), Deadline(60))
