import json

import pytest
from hypothesis import given

from rioni.domain.schemas import strict_json
from rioni.domain.schemas.strict_json import JsonError
from tests.support.strategies import json_texts, json_values


@given(json_texts())
def test_valid_json_is_parsed_as_by_the_standard_library(text):
    assert strict_json.decode(text) == json.loads(text)
    assert strict_json.decode(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a":1,"a":2}', 'Duplicate key "a"'),
        ('{"b":{"a":1,"\\u0061":2}}', 'Duplicate key "a"'),
        ("NaN", "Unexpected NaN"),
        ("[-Infinity]", "Unexpected -Infinity"),
        ("9223372036854775808", "Can not use long value '9223372036854775808' cause it is too big"),
        ("-9223372036854775809", "Can not use long value '-9223372036854775809' cause it is too big"),
        ("1" * 5000, f"Can not use long value '{'1' * 100}' cause it is too big"),
        ("1e999", "Can not use number '1e999' cause it is too big"),
        ('"\\ud800"', "Lone surrogate in a string"),
        ('"\x01"', "Invalid control character at position 1"),
        ('"abc', "Unterminated string starting at position 4"),
        ("[1,]", "Expecting value at position 3"),
        ("01", "Unexpected characters after the value at position 1"),
        ("{'a':1}", "Expecting property name enclosed in double quotes at position 1"),
        ("{} // comment", "Unexpected characters after the value at position 3"),
        ("\ufeff{}", "Expecting value at position 0"),
        ("[" * 100_000, "Too many nested objects and arrays"),
        ("", "Expecting value at position 0"),
    ],
)
def test_json_that_parsers_interpret_differently_is_rejected(text, message):
    """Reference publishing#strict-json."""
    with pytest.raises(JsonError) as caught:
        strict_json.decode(text)
    assert str(caught.value) == message


def test_bytes_that_are_not_utf_8_are_rejected():
    """Reference publishing#strict-json."""
    with pytest.raises(JsonError, match="Not UTF-8"):
        strict_json.decode(b'"\xff"')


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63)])
def test_the_largest_and_the_smallest_64_bit_integer_are_accepted(number):
    assert strict_json.decode(str(number)) == number


@given(json_values)
def test_a_list_around_a_value_is_one_level_deeper(value):
    assert strict_json.depth([value]) == strict_json.depth(value) + 1


def test_the_depth_of_a_scalar_is_0():
    assert strict_json.depth("a") == 0
    assert strict_json.depth({"a": [1, {"b": []}]}) == 4
