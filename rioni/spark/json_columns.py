"""Which columns of Spark hold JSON: their fields are marked, from reading up to writing."""

import json

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from rioni.lake.column_types import JSON
from rioni.lake.columns import marked


IS_JSON = "rioni.json"
"""In the metadata of a column that the source has made: that its texts are JSON."""
MARK = {"SPARK::metadata::json": json.dumps({IS_JSON: True})}
"""The same as Arrow's metadata, as PySpark has it."""


def spark_schema(columns: pa.Schema) -> StructType:
    """Columns for Spark: JSON is text with a mark."""
    return from_arrow_schema(marked(columns, MARK))


def arrow_columns(schema: StructType) -> pa.Schema:
    """Columns of Spark: marked text is JSON."""
    return pa.schema([_field(each) for each in to_arrow_schema(schema, timezone="UTC")])


def has_marks(columns: pa.Schema) -> bool:
    """Whether there is JSON, so that the columns are not those of a user."""
    return any(each.type == JSON for each in columns)


def as_declared(columns: pa.Schema, declared: pa.Schema) -> pa.Schema:
    """Columns that a user has named, where texts are JSON if they would be so without the user."""
    return pa.schema([_as_declared(each, declared) for each in columns])


def _as_declared(field: pa.Field, declared: pa.Schema | pa.StructType) -> pa.Field:
    if (index := declared.get_field_index(field.name)) < 0:
        return field
    return pa.field(field.name, _type_as_declared(field.type, declared.field(index).type))


def _type_as_declared(kind: pa.DataType, declared: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return declared if declared == JSON else kind
    if pa.types.is_struct(kind) and pa.types.is_struct(declared):
        return pa.struct([_as_declared(each, declared) for each in kind])
    if pa.types.is_list(kind) and pa.types.is_list(declared):
        return pa.list_(_type_as_declared(kind.value_type, declared.value_type))
    return kind


def _field(field: pa.Field) -> pa.Field:
    marks = json.loads((field.metadata or {}).get(b"SPARK::metadata::json", b"{}"))
    return pa.field(field.name, JSON if marks.get(IS_JSON) and pa.types.is_string(field.type) else _type(field.type))


def _type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_field(each) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(_type(kind.key_type), _type(kind.item_type))
    return pa.list_(_type(kind.value_type)) if pa.types.is_list(kind) else kind
