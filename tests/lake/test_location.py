"""Lakes in a bucket of an S3-compatible server, with its address and credentials from the environment."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from moto.server import ThreadedMotoServer

from rioni.domain.errors import Invalid
from rioni.lake.archive import open_lake
from rioni.lake.location import parse_location
from tests.support.lake import FORMATS, ArchiveUnderTest, canonical, create_orders, publish_orders, stored


VARIABLES = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-central-1"}


@pytest.fixture(scope="module")
def s3():
    """The URL of a server with a bucket `lake`."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    location = (
        b"<CreateBucketConfiguration><LocationConstraint>eu-central-1</LocationConstraint></CreateBucketConfiguration>"
    )
    urllib.request.urlopen(urllib.request.Request(f"{url}/lake", location, method="PUT")).close()
    yield url
    server.stop()


def read(lake: ArchiveUnderTest, name: str, s3: str) -> pa.Table:
    if lake.format == "delta":
        options = VARIABLES | {"AWS_ENDPOINT_URL": s3, "AWS_ALLOW_HTTP": "true"}
        return DeltaTable(f"{lake.to}/{name}", storage_options=options).to_pyarrow_table()
    keys = {"s3.access-key-id": "key", "s3.secret-access-key": "secret", "s3.region": "eu-central-1"}
    return lake.iceberg(name, "events", **keys, **{"s3.endpoint": s3})


@pytest.mark.parametrize("format_", FORMATS)
def test_a_lake_in_a_bucket_has_each_event_once(client, server, s3, tmp_path, monkeypatch, format_):
    for name, value in (VARIABLES | {"AWS_ENDPOINT_URL": s3}).items():
        monkeypatch.setenv(name, value)
    catalog = f"sqlite:///{tmp_path / 'catalog.db'}" if format_ == "iceberg" else None
    lake = ArchiveUnderTest(url=server.url, to=f"s3://lake/{format_}", format_=format_, catalog=catalog)
    event_type = create_orders(client)
    for number in range(2):
        publish_orders(client, event_type, {"order": f"a{number}"}, {"order": f"b{number}"})
        assert lake.archive(event_type)[event_type].archived == 2
    events = read(lake, event_type, s3)["_event"].to_pylist()
    assert sorted(canonical(json.loads(each)) for each in events) == stored(client, event_type)


@pytest.mark.parametrize(
    ("format_", "to", "catalog"),
    [
        ("orc", "lake", None),
        ("delta", "https://example.com/lake", None),
        ("delta", "s3://", None),
        ("delta", "lake", "sqlite://"),
        ("iceberg", "s3://lake/x", None),
    ],
)
def test_what_can_not_be_a_lake_is_refused(format_, to, catalog):
    with pytest.raises(Invalid):
        open_lake(format_, parse_location(to), catalog)


def test_the_query_of_the_guide_counts_the_events(client, server, tmp_path):
    """The query of docs/operating/archive.md."""
    name = create_orders(client)
    publish_orders(client, name, {"order": "a", "amount": 3}, {"order": "b", "amount": 4})
    ArchiveUnderTest(url=server.url, to=str(tmp_path), format_="delta").archive(name)
    page = (Path(__file__).parents[2] / "docs/operating/archive.md").read_text()
    query = page.split("```python\n")[1].split("```")[0].replace("lake/order.created", str(tmp_path / name))
    done = subprocess.run([sys.executable, "-c", query], capture_output=True, text=True, check=False)
    assert "2" in done.stdout, done.stderr
