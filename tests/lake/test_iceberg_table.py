"""Arrays and maps that are null, compared with empty ones, in Iceberg tables."""

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from rioni.lake import iceberg_table


STRUCT = pa.struct([("n", pa.int64())])
MAP = pa.map_(pa.string(), STRUCT)
VALUES = {
    "map": (MAP, [None, [], [("a", {"n": 1})], [("a", None)]]),
    "map of maps": (pa.map_(pa.string(), MAP), [None, [], [("a", None)], [("a", [])], [("a", [("b", {"n": 2})])]]),
    "map of arrays": (pa.map_(pa.string(), pa.list_(STRUCT)), [None, [("a", None)], [("a", [])], [("a", [None])]]),
    "array of maps": (pa.list_(MAP), [None, [], [None], [[]], [[("a", {"n": 3})], None]]),
    "struct with a map": (pa.struct([("m", MAP)]), [{"m": None}, {"m": []}, {"m": [("a", {"n": 4})]}]),
    "map of texts": (pa.map_(pa.string(), pa.string()), [None, [], [("a", None)], [("a", "x")]]),
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    folder = tmp_path_factory.mktemp("iceberg")
    catalog = load_catalog("maps", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace("maps")
    yield catalog
    catalog.close()


@pytest.mark.parametrize("name", VALUES)
def test_what_is_null_is_not_empty_after_writing_and_reading(catalog, name):
    kind, values = VALUES[name]
    assert iceberg_table.EVENT_TYPE, "importing the module replaces PyIceberg's class"
    rows = pa.table({"x": pa.array(values, kind)})
    table = catalog.create_table(f"maps.{name.replace(' ', '_')}", rows.schema)
    table.append(rows)
    assert table.scan().to_arrow()["x"].to_pylist() == values
