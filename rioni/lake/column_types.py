"""What the columns of JSON and Avro schemas share: the type of JSON, and how many fields there may be."""

from collections.abc import Collection, Iterator
from itertools import islice

import pyarrow as pa


DEPTH_MAX = 8
FIELDS_MAX = 5_000
"""In all structs together; references could make them many. What is beyond is JSON."""
JSON = pa.json_(pa.string())
"""The type of columns whose texts are JSON; what is stored are texts, with a mark."""


def list_of(kind: pa.DataType) -> pa.DataType:
    """A list; where its items are open, all of it is JSON: formats have no mark for items."""
    return JSON if kind == JSON else pa.list_(kind)


def affords(budget: Iterator[int], names: Collection[str]) -> bool:
    """Whether there may be as many fields more."""
    return len(list(islice(budget, len(names)))) == len(names)


def can_name(name: str) -> bool:
    """Whether all formats have columns of this name: Delta cuts it off at U+0000."""
    return name != "" and "\0" not in name


def distinct(names: Collection[str]) -> bool:
    """Whether there are names, all of them possible, and different for engines that ignore their case."""
    return 0 < len(names) == len({each.lower() for each in names if can_name(each)})
