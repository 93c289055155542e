"""Names that a broker sends, and secrets of catalogs and buckets: neither leads or goes where it does not belong."""

import uuid

import pytest

from rioni.client import Client, UnexpectedAnswer
from rioni.client.ranges import Locator, RangeError
from rioni.domain.errors import Invalid, RioniError
from rioni.lake.archive import Archive, open_lake
from rioni.lake.event_type_archive import ArchiveMetrics, CommitLimits
from rioni.lake.location import Location, Secrets, parse_location, without_credentials
from rioni.lake.reader import event_type
from rioni.spark.options import parse_options
from tests.support.lake import create_orders, publish_orders, stored
from tests.support.scripted_server import Answer, scripted_server


HOSTILE = ("../../outside", "/etc/outside", "a/b", "..", "", "a\x00b", "a\\b", "_quarantine", "\x1b[2J", "a" * 256)


def described(name: str) -> dict:
    return {
        "name": name,
        "owning_application": "shop",
        "category": "business",
        "schema": {"type": "json_schema", "schema": "{}", "version": "1.0.0"},
        "created_at": "2026-01-01T00:00:00Z",
    }


def partitions(name: str = "0") -> list[dict]:
    offset = "001-0001-000000000000000000"
    return [{"partition": name, "oldest_available_offset": offset, "newest_available_offset": offset}]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_an_archive_writes_nothing_outside_its_folder_whatever_a_broker_names_an_event_type(tmp_path, name):
    inside = tmp_path / "deep" / "lake"
    with scripted_server() as server, Client(server.url) as client:
        server.script_paths({"/event-types": [Answer(body=[described(name)])]})
        work = Archive(
            client,
            open_lake("delta", parse_location(str(inside)), None),
            (),
            CommitLimits(),
            ArchiveMetrics(),
        )
        done, failed = work.archive(lambda: False)
    assert (done, len(failed)) == ({}, 1)
    assert "\x1b" not in "".join(failed)
    assert "can't have such a name" in str(*failed.values())
    assert list(tmp_path.rglob("*")) == []


def test_an_answer_about_another_event_type_is_refused():
    with scripted_server() as server, Client(server.url) as client:
        server.script(Answer(body=described("../../outside")))
        with pytest.raises(UnexpectedAnswer, match="was asked for orders, and answered with"):
            event_type(client, "orders")


@pytest.mark.parametrize("name", ["../0", "", "0/1", "a", "-1", "0\n"], ids=ascii)
def test_a_partition_has_a_number(name):
    with scripted_server() as server, Client(server.url) as client:
        server.script(Answer(body=partitions(name)))
        with pytest.raises(RangeError, match="which is no number"):
            Locator(client, "orders").bounds()


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "a\\b", "a\x00"], ids=ascii)
def test_no_path_leads_out_of_a_location(name):
    with pytest.raises(Invalid, match="can't be the name of a table"):
        Location("/lake", {}).below("_quarantine", name)


def test_event_types_with_similar_names_have_tables_of_their_own(client, lake):
    part = uuid.uuid4().hex[:8]
    names = [f"order.made-{part}", f"order-made-{part}", f"Order.made_{part}", f"order_made_{part}"]
    for name in names:
        body = client.get(f"/event-types/{create_orders(client)}").json() | {"name": name}
        assert client.post("/event-types", json=body).status_code == 201
    for round_ in range(2):
        for name in names:
            publish_orders(client, name, {"order": f"{name} {round_}"})
        done = lake.archive(*names if round_ else reversed(names))
        assert {name: each.archived for name, each in done.items()} == dict.fromkeys(names, 1)
    for name in names:
        assert lake.archived(name) == stored(client, name)


CATALOGS = (
    "postgresql+psycopg://joe:s3cret@127.0.0.1:1/x",
    "postgresql+psycopg://joe:s3cret@127.0.0.1:port/x",
    "nosuch://joe:s3cret@127.0.0.1/x",
    "postgresql+psycopg://joe:s3%63ret@127.0.0.1:1/x",
    "postgresql+psycopg://joe:a@s3cret@127.0.0.1:1/x",
    "postgresql+psycopg://joe:a/s3cret@127.0.0.1:1/x",
    "postgresql+psycopg://127.0.0.1:1/x?user=joe&password=s3cret",
)


@pytest.mark.parametrize("catalog", CATALOGS)
def test_the_password_of_a_catalog_that_can_not_be_used_is_not_shown(tmp_path, catalog):
    with pytest.raises(RioniError, match="catalog") as raised:
        open_lake("iceberg", parse_location(str(tmp_path)), catalog)
    assert "s3cret" not in str(raised.value)
    assert "s3%63ret" not in str(raised.value)


def test_secrets_are_removed_from_errors_of_libraries():
    secrets = Secrets({"AWS_SECRET_ACCESS_KEY": "abc/+", "token": "t0ken", "uri": "db://u:pw@h/x", "AWS_REGION": "eu"})
    text = "eu refused abc/+ of t0ken at db://u:pw@h/x and http://me:mine@other"
    assert secrets.removed_from(text) == "eu refused *** of *** at db://***@h/x and http://***@other"
    assert without_credentials("db://u:p@w@h/x?password=y") == "db://h/x"
    assert without_credentials("name") == "name"


@pytest.mark.parametrize("url", ["s3://key:s3cret@bucket/x"])
def test_credentials_in_the_url_of_a_bucket_are_refused_unseen(url):
    with pytest.raises(Invalid) as raised:
        parse_location(url)
    assert "s3cret" not in str(raised.value)


def test_credentials_in_the_url_of_a_broker_are_refused_unseen():
    with pytest.raises(Invalid) as raised:
        parse_options({"url": "http://joe:s3cret@localhost:8080"}).client()
    assert "s3cret" not in str(raised.value)
