"""The console's handling of the API's answers."""

import json

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from rioni.console.api import DECODED_AT_ONCE_BYTES_MAX, ApiAnswer, decoded


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@given(
    VALUES
    | st.lists(VALUES)
    | st.builds(lambda items, rest: {"items": items} | rest, st.lists(VALUES), st.dictionaries(st.text(), VALUES)),
)
@example({"items": [], "_links": {}})
@example({"items": [1], "_links": {"next": {"href": "/?after=1"}}})
@example([])
@example({"items": None})
def test_an_answer_is_decoded_item_by_item_as_in_one_piece(value):
    for content in (orjson.dumps(value), json.dumps(value, indent=1).encode()):
        assert decoded(content) == orjson.loads(content)


def test_large_answers_are_decoded_where_they_block_nobody_else():
    calls = []

    def compute(function, *arguments):
        calls.append(arguments)
        return function(*arguments)

    for size, count in ((10, 0), (DECODED_AT_ONCE_BYTES_MAX, 1)):
        content = orjson.dumps({"items": ["x" * size]})
        assert ApiAnswer(200, {}, content, compute).json() == {"items": ["x" * size]}
        assert len(calls) == count
    assert ApiAnswer(204, {}, b"", compute).json() is None
