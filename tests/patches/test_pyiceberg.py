"""PyIceberg looks the replaced class up when it projects, and loses nulls without it."""

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import pyarrow as pyiceberg_arrow

from rioni.patches import pyiceberg as patch


SCHEMA = pa.schema([pa.field("a", pa.list_(pa.field("element", pa.struct([pa.field("b", pa.int64())]))))])


@pytest.fixture
def table(tmp_path):
    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    yield catalog.create_table("n.t", SCHEMA)
    catalog.close()


def nulls(table):
    table.append(pa.table({"a": pa.array([None, [], [{"b": 1}]], SCHEMA.field("a").type)}))
    return table.scan().to_arrow()["a"].to_pylist()


def test_without_the_patch_nulls_become_empty(table, monkeypatch):
    """If this test fails, the patch can go."""
    monkeypatch.setattr(pyiceberg_arrow, "ArrowProjectionVisitor", patch.ArrowProjectionVisitor)
    assert nulls(table) == [[], [], [{"b": 1}]]


def test_with_the_patch_nulls_remain(table, monkeypatch):
    monkeypatch.setattr(pyiceberg_arrow, "ArrowProjectionVisitor", patch.ArrowProjectionVisitor)
    patch.keep_nulls()
    assert nulls(table) == [None, [], [{"b": 1}]]
