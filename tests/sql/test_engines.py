"""URLs of databases: several hosts as libpq has them, and one line without the password for what can't be read."""

import pytest

from rioni.domain.errors import Unavailable
from rioni.sql.engines import libpq_url, parse_url
from rioni.storage.sql.engines import create_engine


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("postgresql://h1:1,h2:2/db", ["h1:1", "h2:2"]),
        ("postgresql://u:p@h1,h2:2/db", ["h1:5432", "h2:2"]),
        ("postgresql+psycopg://u:p%40@h1,h2,h3/db?connect_timeout=3", ["h1:5432", "h2:5432", "h3:5432"]),
    ],
)
def test_several_hosts_are_tried_for_the_one_that_takes_writes(text, hosts):
    url = parse_url(text)
    assert list(url.query["host"]) == hosts
    assert url.query["target_session_attrs"] == "read-write"
    _, parameters = create_engine(text).dialect.create_connect_args(create_engine(text).url)
    assert parameters["host"] == ",".join(each.rpartition(":")[0] for each in hosts)
    assert parameters["port"] == ",".join(each.rpartition(":")[2] for each in hosts)
    assert f"{','.join(hosts)}/db?" in libpq_url(url)
    assert url.password is None or ":p" in libpq_url(url)


def test_what_a_url_says_of_the_session_stays():
    assert parse_url("postgresql://h1,h2/db?target_session_attrs=any").query["target_session_attrs"] == "any"


def test_one_host_stays_as_it_is():
    assert str(parse_url("postgresql://h:1/db")) == "postgresql://h:1/db"
    assert libpq_url(parse_url("postgresql+psycopg://u:p@h:1/db")) == "postgresql://u:p@h:1/db"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "postgresql://u:secret@h:abc/db",
        "postgresql://u:secret@h:0/db",
        "postgresql://u:secret@h:99999999/db",
        "postgresql://u:secret@h1:1,/db",
        "postgresql://u:secret@,h2/db",
        "postgresql://u:secret@h1:1,h2:x/db",
        "postgresql://u:secret@::1/db",
        "postgresql:u:secret@h/db",
        "mysql://u:secret@h/db",
        "postgres://u:secret@h/db",
        "nonsense+x://u:secret@h/db",
        "sqlite://",
    ],
)
def test_what_can_not_be_read_is_one_line_without_the_password(text):
    with pytest.raises(Unavailable) as refused:
        create_engine(text)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)
