from pathlib import Path

import pytest

from rioni.domain.errors import Unavailable
from rioni.storage.zookeeper.factory import ZooKeeperOptions, read_options


def test_without_a_file_there_are_no_options():
    assert read_options(None) == ZooKeeperOptions()


def test_a_file_may_set_credentials_and_trusted_authorities(tmp_path: Path):
    path = tmp_path / "zookeeper.toml"
    path.write_text('user = "rioni"\npassword = "secret"\nca = "/ca.pem"\ncertificate = "/own.pem"\nkey = "/key.pem"\n')
    assert read_options(path) == ZooKeeperOptions("rioni", "secret", "/ca.pem", "/own.pem", "/key.pem")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("user", "is not valid TOML"),
        ('user = "rioni"', "sets user, which needs password"),
        ('password = "secret"', "sets password, which needs user"),
        ('ca = "/ca.pem"\nkey = "/key.pem"', "sets key, which needs certificate"),
        ('certificate = "/own.pem"\nkey = "/key.pem"', "sets certificate, which needs ca"),
        ('token = "secret"', "user, password, ca, certificate, key"),
        ("user = 5", "invalid option"),
    ],
)
def test_a_file_with_unknown_options_is_rejected_and_no_secret_shown(tmp_path: Path, text: str, problem: str):
    path = tmp_path / "zookeeper.toml"
    path.write_text(text)
    with pytest.raises(Unavailable, match=problem) as caught:
        read_options(path)
    assert "secret" not in str(caught.value)


def test_a_missing_file_is_an_error(tmp_path: Path):
    with pytest.raises(Unavailable, match="can't be read: No such file"):
        read_options(tmp_path / "zookeeper.toml")
