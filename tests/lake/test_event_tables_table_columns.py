"""Columns of a table never change their type: what no longer fits goes to another one."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.lake.columns import DOC, JSON, list_of, marked
from rioni.lake.event_tables import merged, place_columns, shaped
from rioni.lake.table import plain_schema


INTEGER, NUMBER, TEXT = pa.int64(), pa.float64(), pa.string()
SCALARS = st.sampled_from([INTEGER, NUMBER, TEXT, pa.bool_(), JSON])
TYPES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([(f"f{number}", kind) for number, kind in enumerate(kinds)])
        )
        | inner.map(list_of)
    ),
    max_leaves=4,
)
SCHEMAS = st.dictionaries(st.sampled_from("abc"), TYPES, min_size=1).map(lambda fields: pa.schema(list(fields.items())))


@pytest.mark.parametrize(
    ("table", "events", "name", "kind"),
    [
        (INTEGER, INTEGER, "x", INTEGER),
        (NUMBER, INTEGER, "x", NUMBER),
        (INTEGER, NUMBER, "x__2", NUMBER),
        (TEXT, INTEGER, "x__2", INTEGER),
        (TEXT, JSON, "x__2", JSON),
        (JSON, INTEGER, "x", JSON),
        (JSON, TEXT, "x", JSON),
        (pa.struct([("a", TEXT)]), pa.struct([("b", TEXT)]), "x", pa.struct([("a", TEXT), ("b", TEXT)])),
        (pa.struct([("a", INTEGER)]), pa.struct([("a", TEXT)]), "x__2", pa.struct([("a", TEXT)])),
        (pa.list_(INTEGER), pa.list_(NUMBER), "x__2", pa.list_(NUMBER)),
    ],
    ids=str,
)
def test_a_column_is_used_if_it_holds_the_values_as_they_are(table, events, name, kind):
    (column,) = place_columns(pa.schema([("x", table)]), pa.schema([("x", events)]))
    assert (column.field, column.name, column.type) == ("x", name, kind)


@given(st.lists(SCHEMAS, min_size=1, max_size=5))
def test_a_table_only_gains_columns_and_fields(versions):
    """Whatever comes after whatever: old rows and new ones fit into one table."""
    table, rows = None, []
    for number in range(len(versions)):
        events = merged(versions[: number + 1])
        columns = place_columns(table, events)
        stored = marked(pa.schema([(each.field, each.type) for each in columns]), DOC)
        batch = pa.record_batch([pa.nulls(1, each.type) for each in stored], stored.names)
        added = shaped(batch, columns, table, {})
        if table is not None:
            assert added.schema.names[: len(table.names)] == table.names
        table = plain_schema(added.schema)
        rows.append(added)
        assert place_columns(table, events) == columns, "it finds its own columns again"
    # Without casts: promotion of integers to numbers, and the like, would fail here.
    assert pa.unify_schemas([each.schema for each in rows]).names == table.names


def test_a_column_that_an_event_type_no_longer_has_stays_empty():
    table = pa.schema([("old", INTEGER), ("x", TEXT)])
    columns = place_columns(table, pa.schema([("x", TEXT)]))
    rows = shaped(pa.record_batch([pa.array(["a"])], ["x"]), columns, table, {"own": pa.array([True])})
    assert rows.to_pylist() == [{"old": None, "x": "a", "own": True}]
