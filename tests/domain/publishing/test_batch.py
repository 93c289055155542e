"""Parsing the body of a batch: reference publishing#batches, publishing#batch-format."""

import json
import tracemalloc
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.errors import Malformed, RioniError, TooLarge
from rioni.domain.limits import Limits
from rioni.domain.publishing import batch as batch_module
from rioni.domain.publishing.batch import one_line, split
from tests.support.strategies import as_written, json_objects, json_texts


events = json_texts(json_objects).map(str.strip)


@given(st.lists(events, max_size=5), st.sampled_from(["", " ", "\r\n\t"]))
def test_every_event_keeps_its_original_bytes(texts, space):
    body = f"{space}[{space}{f'{space},{space}'.join(texts)}{space}]{space}"
    batch = split(body.encode())
    assert batch.raw == [text.encode() for text in texts]
    assert batch.values == [json.loads(text) for text in texts]


@given(st.lists(events, max_size=5), st.sampled_from(["", ",,", " ", ",\n, "]))
def test_separators_may_be_missing_or_doubled(texts, separator):
    batch = split(f"[{separator}{separator.join(texts)}{separator}]".encode())
    assert batch.raw == [text.encode() for text in texts]
    assert batch.values == [json.loads(text) for text in texts]


@given(st.lists(events, max_size=9), st.integers(2, 40), st.sampled_from([",", " ,\n", "", ",,"]))
def test_a_large_body_is_read_in_parts(texts, size, separator):
    body = f"[{separator.join(texts)}]".encode()
    with (
        mock.patch.object(batch_module, "PART_BYTES", size),
        mock.patch.object(batch_module, "_PART_BYTES_MAX", 4 * size),
    ):
        batch = split(body)
    assert batch.raw == [text.encode() for text in texts]
    assert batch.values == [json.loads(text) for text in texts]


@pytest.mark.parametrize("count", [1, 20, 5_000])
@pytest.mark.parametrize("note", ["x", "ä" * 300, [{"a": 1}, {"a": 2}], '"},{"a":'])
def test_many_events_that_begin_alike_are_read_in_parts(count, note):
    many = [{"a": number, "notes": [note] * (600_000 // count // 100)} for number in range(count)]
    batch = split(json.dumps(many, ensure_ascii=False).encode())
    assert batch.values == many
    assert list(map(json.loads, batch.raw)) == many


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (b'{"a":"\xff"}', "Not UTF-8"),
        (b"{},[]", "Illegal character at position 600013"),
        (b'{"a":1,"a":2}', 'Duplicate key "a"'),
        (b'{"a":1', "Unclosed object staring at 600010 found."),
        ('{"ä":"ä"},{"ä":1,}'.encode(), "Expecting property name enclosed in double quotes at position 600027"),
    ],
)
def test_errors_late_in_a_large_body_are_named(events, message):
    with pytest.raises(Malformed) as caught:
        split(b'[{"a":"' + "ä".encode() * 600_000 + b'"},' + events)
    assert message in str(caught.value)


def test_an_event_that_is_much_too_large_is_not_parsed():
    """Reference publishing#batch-limits."""
    with pytest.raises(TooLarge, match="Event too large: more than 8000000 bytes"):
        split(b'[{"a":"' + b"x" * 9_000_000 + b'"}]')


@given(events)
def test_line_breaks_can_be_removed_without_changing_a_value(text):
    """Reference publishing#stored-form."""
    (line,) = one_line([text.encode()])
    assert not set(line) & set(b"\r\n\t")
    assert as_written(line) == as_written(text)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "Array of events should start with [ at position 0"),
        (b"  ", "Array of events should start with [ at position 2"),
        (b'{"a":1}', "Array of events should start with [ at position 0"),
        (b"[{}", "Array of events should end with ] at position 3"),
        (b"[{}" + b" " * 200_000, "Array of events should end with ] at position 3"),
        (b"[{}] x", "Array of events should end with ] at position 6"),
        (b"[1]", "Illegal character at position 1"),
        (b"[{},[]]", "Illegal character at position 4"),
        (b'["a"]', "Illegal character at position 1"),
        (b"[null]", "Illegal character at position 1"),
        (b'[{"a":1', "Unclosed object staring at 1 found."),
        (b'[{}, {"a":"]', "Unclosed object staring at 5 found."),
        (b'[{"a":1,"a":2}]', 'Duplicate key "a"'),
        (b'[{"x":{"a":1,"b":2,"a":":"}}]', 'Duplicate key "a"'),
        (b'[{"a":"\\u003a","a":1}]', 'Duplicate key "a"'),
        (b'[{"a":":","\\u0061":1}]', 'Duplicate key "a"'),
        (b'[{"a":9223372036854775808}]', "Can not use long value '9223372036854775808' cause it is too big"),
        (b'[{"a":-9223372036854775809}]', "Can not use long value '-9223372036854775809' cause it is too big"),
        (b'[{"a":18446744073709551616}]', "Can not use long value '18446744073709551616' cause it is too big"),
        (b'[{"a":1e400}]', "Can not use number '1e400' cause it is too big"),
        (b'[{"a":NaN}]', "Unexpected NaN"),
        (b'[{"a":"\\ud800"}]', "Lone surrogate in a string"),
        (b'[{"a":"\x1f"}]', "Invalid control character at position 7"),
        (b"[{'a':1}]", "Expecting property name enclosed in double quotes at position 2"),
        (b'[{"a":"\\\'"}]', "Invalid \\escape at position 7"),
        (b'[{"a":1,}]', "Expecting property name enclosed in double quotes at position 8"),
        (b'[{"a":01}]', "Expecting ',' delimiter at position 7"),
        (b'[{"a":' + b"[" * 64 + b"]" * 64 + b"}]", "More than 64 nested objects and arrays"),
        (b'[{"a":' * 100_000, "Too many nested objects and arrays"),
    ],
)
def test_anything_but_an_array_of_strict_objects_is_malformed(body, message):
    """Reference publishing#strict-json."""
    with pytest.raises(Malformed) as caught:
        split(body)
    assert str(caught.value) == f"Error occurred when parsing event(s). {message}"


@pytest.mark.parametrize(
    "text",
    [
        '{"a":9223372036854775807}',
        '{"a":-9223372036854775808}',
        '{"a":1234567890123456789}',
        '{"a":0.12345678901234567890123}',
        '{"a":"12345678901234567890","b":9007199254740993}',
        '{"a":"\\u003a:","b":":"}',
        '{"a":' + "[" * 63 + "]" * 63 + "}",
        '{"a":' + "[" * 63 + "9007199254740993" + "]" * 63 + "}",
    ],
)
def test_unusual_but_valid_json_is_accepted(text):
    batch = split(f"[{text}]".encode())
    assert batch.raw == [text.encode()]
    assert batch.values == [json.loads(text)]


def test_an_empty_batch_is_accepted():
    batch = split(b" [ ] ")
    assert (len(batch), batch.raw, batch.values) == (0, [], [])


def test_the_limits_of_events_and_bytes_are_inclusive():
    """Reference publishing#batch-limits."""
    body = b'[{"a":{}},{}]'
    assert len(split(body, Limits(batch_events_max=2, body_bytes_max=len(body)))) == 2
    with pytest.raises(TooLarge, match="more than 1 events"):
        split(body, Limits(batch_events_max=1))
    with pytest.raises(TooLarge, match="Batch too large: 13 bytes, max size is 12 bytes"):
        split(body, Limits(body_bytes_max=12))


@given(
    st.binary(max_size=100)
    | st.lists(st.sampled_from([*'[]{},:"\\ ', "null", '"a"', "1e9"])).map("".join).map(str.encode)
)
def test_any_bytes_are_either_parsed_or_rejected(body):
    try:
        batch = split(body)
    except RioniError:
        return
    assert batch.values == [json.loads(event) for event in batch.raw]


@pytest.mark.parametrize("value", [b"[]", b"{}", b'{"":[]}', b"1"])
def test_a_batch_of_too_many_values_is_rejected_before_they_are_built(value):
    """Millions of empty lists take a hundred times the memory of their brackets.

    Source: reference publishing#batch-limits.
    """
    body = b'[{"a":[%b]}]' % b",".join([value] * 20_000)
    assert len(split(body).values) == 1
    with pytest.raises(TooLarge, match="more than 10000 values"):
        split(body, Limits(batch_values_max=10_000))
    large = b'[{"a":[%b]}]' % b",".join([b"[]"] * 2_000_001)
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match="more than 2000000 values"):
            split(large)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 10_000_000
