"""Arrow's JSON reader and the conversion one by one make the same rows."""

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.lake import json_reader
from rioni.lake.columns import JSON
from rioni.lake.json_reader import read_batch
from rioni.lake.rows import record_batch


TEXT, INTEGER, NUMBER, BOOLEAN = pa.string(), pa.int64(), pa.float64(), pa.bool_()
SCHEMA = pa.schema(
    [
        ("i", INTEGER),
        ("n", NUMBER),
        ("b", BOOLEAN),
        ("t", TEXT),
        ("l", pa.list_(pa.struct([("n", NUMBER)]))),
        ("s", pa.struct([("i", INTEGER), ("t", TEXT)])),
        ("j", JSON),
        ("o", pa.struct([("j", JSON)])),
        ("_rest", JSON),
        *((name, TEXT) for name in ("_partition", "_offset", "_corrupt")),
    ]
)

INT64 = st.integers(-(2**63), 2**63 - 1)
NUMBERS = INT64 | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
FITTING = st.fixed_dictionaries(
    {},
    optional={
        "i": st.none() | INT64,
        "n": st.none() | NUMBERS,
        "b": st.none() | st.booleans(),
        "t": st.none() | TEXTS,
        "l": st.none() | st.lists(st.none() | st.fixed_dictionaries({}, optional={"n": NUMBERS}), max_size=3),
        "s": st.none() | st.fixed_dictionaries({}, optional={"i": INT64, "t": TEXTS, "more": TEXTS}),
        "j": st.none() | NUMBERS | TEXTS | st.just([1.5]),
        "o": st.none() | st.fixed_dictionaries({}, optional={"j": TEXTS | NUMBERS, "k": TEXTS}),
        "more": NUMBERS | TEXTS | st.lists(NUMBERS, max_size=2),
    },
)
ANY = st.dictionaries(
    st.sampled_from("inbtlsjo"),
    st.none() | st.booleans() | NUMBERS | TEXTS | st.just({"i": "x"}) | st.just([1]) | st.just({}),
    max_size=3,
)


def both(events):
    """The rows of some events, read together and one by one."""
    texts, offsets = [orjson.dumps(each) for each in events], [str(number) for number in range(len(events))]
    single = record_batch(SCHEMA, [("0", offset, text) for offset, text in zip(offsets, texts, strict=True)])
    return read_batch(SCHEMA, "0", pa.array(offsets, TEXT), texts), single


@given(st.lists(FITTING, max_size=4))
def test_what_fits_is_read_as_one_by_one(events):
    together, single = both(events)
    assert together.equals(single)


@given(st.lists(FITTING | ANY, max_size=4))
def test_what_does_not_fit_is_read_as_one_by_one(events):
    together, single = both(events)
    assert together.equals(single)


def test_what_fits_is_not_read_one_by_one(monkeypatch):
    monkeypatch.setattr(json_reader, "record_batch", lambda *_: pytest.fail("one by one"))
    together, _ = both([{"i": number, "t": "x" * number} for number in range(1_000)])
    assert together.column("i").to_pylist() == list(range(1_000))


def test_what_has_no_column_is_not_read_one_by_one(monkeypatch):
    events = [
        {"i": number, "s": {"t": "x", "more": number}, "l": [{"n": 1}, {"k": 2}], "j": "x"} for number in range(9)
    ]
    _, single = both(events)
    monkeypatch.setattr(json_reader, "record_batch", lambda *_: pytest.fail("one by one"))
    texts = [orjson.dumps(each) for each in events]
    together = read_batch(SCHEMA, "0", pa.array([str(number) for number in range(9)], TEXT), texts)
    assert together.equals(single)
    assert together.column("_rest")[8].as_py() == '{"s":{"more":8},"l":[null,{"k":2}]}'
