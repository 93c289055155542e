import socket

import pytest

from rioni.cli.doctor import settings
from rioni.cli.doctor.diagnosis import Deadline, NotLookedAt, Scope, Site
from rioni.client import Client
from rioni.config.settings import Config


@pytest.fixture
def site():
    with Client("http://127.0.0.1:1", attempts=1) as client:
        yield Site("http://127.0.0.1:1", client, Scope(), Deadline(60))


def test_addresses_are_those_of_the_settings():
    config = Config(
        kafka="k1:9092,[::1]:9093",
        zookeeper="z1:2181,z2:2182/rioni",
        database="postgresql://rioni:p%40ss@db/rioni",
        auth_tokeninfo_local="http://localhost:9000/tokeninfo",
        auth_tokeninfo_remote="https://tokens.example.org/info",
    )
    assert list(settings.addresses(config)) == [
        ("kafka", "k1", 9092),
        ("kafka", "::1", 9093),
        ("zookeeper", "z1", 2181),
        ("zookeeper", "z2", 2182),
        ("database", "db", 5432),
        ("auth_tokeninfo_local", "localhost", 9000),
        ("auth_tokeninfo_remote", "tokens.example.org", 443),
    ]


@pytest.mark.parametrize("database", ["postgresql:///rioni", "postgresql://db:x/rioni", "no url"])
def test_a_database_without_an_address_is_left_out(database):
    assert list(settings.addresses(Config(database=database))) == []


def test_connections_are_tried(site):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = settings.servers.gather(site, Config(kafka=f"127.0.0.1:{port},127.0.0.1:1"))
    assert found == [
        settings.NamedServer("kafka", f"127.0.0.1:{port}"),
        settings.NamedServer("kafka", "127.0.0.1:1", "Connection refused"),
    ]


def test_without_other_servers_there_is_nothing_to_look_at(site):
    with pytest.raises(NotLookedAt):
        settings.servers.gather(site, Config())
