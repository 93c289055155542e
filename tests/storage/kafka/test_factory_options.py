from pathlib import Path

import pytest

from rioni.domain.errors import Unavailable
from rioni.domain.system.storages import StorageEntry
from rioni.storage.kafka.client import connection_of
from rioni.storage.kafka.factory import opener, options_of, read_options


FILE = """
["a:1, B:2"]
security.protocol = "SASL_SSL"
sasl.mechanism = "PLAIN"
sasl.username = "rioni"
sasl.password = "s3cret"
socket.keepalive.enable = true
socket.timeout.ms = 3000

["c:3"]
"ssl.ca.location" = "/ca.pem"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "kafka.toml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("a:1,b:2", "rioni"),
        ("b:2", "rioni"),
        ("c:3", None),
        # A client that creates a storage must not get the password by naming its own machine as a broker.
        ("a:1,evil:1", None),
        ("evil:1", None),
        ("", None),
    ],
)
def test_only_the_named_brokers_get_credentials(path, servers, expected):
    assert options_of(read_options(path), servers).get("sasl.username") == expected


def test_all_values_are_strings_as_librdkafka_expects(path):
    assert options_of(read_options(path), "a:1") == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "rioni",
        "sasl.password": "s3cret",
        "socket.keepalive.enable": "true",
        "socket.timeout.ms": "3000",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('["a:1"]\nacks = 0', "must not set 'acks'"),
        ('["a:1"]\nenable.idempotence = false', "must not set 'enable.idempotence'"),
        ('["a:1"]\nbootstrap.servers = "b:1"', "must not set 'bootstrap.servers'"),
        ('["a:1"]\nsasl.kerberos.kinit.cmd = "rm"', "must not set 'sasl.kerberos.kinit.cmd'"),
        ('["a:1"]\nssl.ca.location = ["s3cret"]', "'ssl.ca.location' .* must be a string"),
        ('sasl_password = "s3cret"', "must be a table header"),
        ('security.protocol = "SSL"', "'security' .* must be a table header"),
        ('["a:1"]\nsasl.password = s3cret', "is not valid TOML: .*line 2"),
        ("\xff", "is not valid TOML"),
        (None, "can't be read: No such file"),
    ],
)
def test_the_error_of_an_unusable_file_gives_the_reason_and_shows_no_value(tmp_path, text, expected):
    path = tmp_path / "kafka.toml"
    if text is not None:
        path.write_bytes(text.encode("latin-1"))
    with pytest.raises(Unavailable, match=expected) as caught:
        opener("a:1", path, database="sqlite:///names.db")
    assert "s3cret" not in str(caught.value)


def test_a_storage_can_not_set_options(path):
    configuration = {"bootstrap_servers": "x:1", "options": {"plugin.library.paths": "evil"}, "request_timeout_s": 9}
    found = connection_of(configuration, None, lambda _servers: {"client.id": "ours"}, request_timeout_s=3.0)
    assert (found.options, found.request_timeout_s) == ({"client.id": "ours"}, 3.0)
    assert found.client()["client.id"] == "ours"


def test_values_that_librdkafka_rejects_are_reported(tmp_path):
    (path := tmp_path / "kafka.toml").write_text('["a:1"]\nsecurity.protocol = "nonsense"')
    storage = StorageEntry(id="k", storage_type="kafka", default=False)
    with pytest.raises(Unavailable, match=r"The storage k can't be used: .*nonsense.*kafka_options"):
        opener("a:1", path, database=f"sqlite:///{tmp_path}/names.db", clock=None, signals=None)(storage)
