"""PyIceberg, which writes and reads null arrays and maps with structs as empty ones.

Reason: an archive has to keep the difference. On an upgrade, run the tests without this module: if they pass, it can
go; otherwise look whether the functions of `pyiceberg.io.pyarrow` still look `ArrowProjectionVisitor` up by its name.

Versions: pyiceberg[sql-sqlite]>=0.12,<0.13.
"""

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import pyarrow as pyiceberg_arrow
from pyiceberg.io.pyarrow import ArrowProjectionVisitor
from pyiceberg.types import ListType, MapType


class _Projection(ArrowProjectionVisitor):
    """Keeps which arrays and maps with structs are null."""

    def list(self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None) -> pa.Array | None:
        return _with_nulls_of(list_array, super().list(list_type, list_array, value_array))

    def map(
        self, map_type: MapType, map_array: pa.Array | None, key_result: pa.Array | None, value_result: pa.Array | None
    ) -> pa.Array | None:
        return _with_nulls_of(map_array, super().map(map_type, map_array, key_result, value_result))


def _with_nulls_of(source: pa.Array | None, found: pa.Array | None) -> pa.Array | None:
    if source is None or found is None or source.null_count == found.null_count:
        return found
    # The result lacks the ids of fields within maps, without which PyIceberg can't read its files.
    return pc.if_else(source.is_valid(), found, pa.scalar(None, found.type)).cast(found.type)


def keep_nulls() -> None:
    """Have PyIceberg, in this process, keep which arrays and maps are null."""
    pyiceberg_arrow.ArrowProjectionVisitor = _Projection  # type: ignore[misc]
