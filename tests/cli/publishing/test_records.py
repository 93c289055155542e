import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.cli.publishing.records import (
    CSV,
    EVENT_BYTES_MAX,
    JSON,
    JSONL,
    TSV,
    FileEvent,
    Unreadable,
    detected,
    json_lines,
    json_values,
    lines_of,
)
from rioni.domain.errors import Invalid


TEXTS = st.text('"\\{}[],: \na\u00e9', max_size=4)
EVENTS = st.lists(
    st.dictionaries(TEXTS, TEXTS | st.lists(TEXTS, max_size=2) | st.dictionaries(TEXTS, TEXTS, max_size=2), max_size=2),
    max_size=3,
)


def _lines(text: bytes | str):
    return lines_of(io.BytesIO(text if isinstance(text, bytes) else text.encode()))


def test_json_lines_are_read_with_their_numbers_and_empty_lines_are_passed_over():
    found = list(json_lines(_lines('{"a": 1}\n\n  {"a":2}\r\n{"a":3}')))
    assert found == [FileEvent(1, b'{"a": 1}'), FileEvent(3, b'{"a":2}'), FileEvent(4, b'{"a":3}')]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[1]", "has to be a JSON object"),
        ("word", "has to be a JSON object"),
        ('{"a":', "it is not JSON"),
        ('{"a":1} {"a":2}', "it is not JSON"),
        ('{"a":NaN}', "it is not JSON"),
        ('{"a":1},', "it is not JSON"),
        ('{"a":1},{"a":2}', "it is not JSON"),
        ('{"a":1}]', "it is not JSON"),
        ('{"a":1,"a":2}', 'Duplicate key "a"'),
        ('{"a":{"b":1,"b":2}}', 'Duplicate key "b"'),
        ('{"a":"\\ud800"}', "Lone surrogate"),
        ('{"a":1e999}', "too big"),
        ('{"a":' + "[" * 64 + "]" * 64 + "}", "nested"),
    ],
)
def test_a_line_that_is_no_event_is_reported_and_reading_goes_on(line, reason):
    first, second = json_lines(_lines(f'{line}\n{{"a":1}}'))
    assert isinstance(first, Unreadable)
    assert (first.line, first.text) == (1, line.encode())
    assert reason in first.reason
    assert second == FileEvent(2, b'{"a":1}')


def test_a_line_that_no_broker_would_read_is_reported_and_takes_little_memory():
    first, second = json_lines(_lines(b'{"a":"' + b"x" * EVENT_BYTES_MAX + b'"}\n{"a":1}\n'))
    assert isinstance(first, Unreadable)
    assert "more than 8,000,000 bytes" in first.reason
    assert len(first.text) <= 1_000
    assert second == FileEvent(2, b'{"a":1}')


@given(EVENTS, st.sampled_from([None, 1]), st.booleans())
def test_values_are_read_from_arrays_and_one_after_the_other(events, indent, in_array):
    text = (
        json.dumps(events, indent=indent) if in_array else "\n".join(json.dumps(each, indent=indent) for each in events)
    )
    found = list(json_values(_lines(text)))
    assert [json.loads(each.text) for each in found] == events
    for each in found:
        assert text.splitlines()[each.line - 1].strip().startswith(("{", "[{", "}"))


@given(EVENTS, st.integers(1, 20))
def test_values_are_found_wherever_the_pieces_end(events, size):
    text = json.dumps(events).encode()
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert [json.loads(each.text) for each in json_values(pieces)] == events


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('[{"a":1},\n', 2, "the array does not end"),
        ('{"a":1}\n{"a":', 2, "does not end"),
        ('{"a":"', 1, "does not end"),
        ('{"a":1}\nword', 2, "an object has to begin"),
        ("[1]", 1, "an object has to begin"),
    ],
)
def test_a_file_that_is_not_complete_is_reported(text, line, reason):
    *_, last = json_values(_lines(text))
    assert isinstance(last, Unreadable)
    assert last.line == line
    assert reason in last.reason


def test_a_value_that_is_no_event_is_reported_and_reading_goes_on():
    first, second = json_values(_lines('[{"a":01},\n{"a":2}]'))
    assert isinstance(first, Unreadable)
    assert second == FileEvent(2, b'{"a":2}')


def test_a_value_that_no_broker_would_read_ends_the_reading():
    (only,) = json_values(_lines(b'{"a":"' + b"x" * 2 * EVENT_BYTES_MAX + b'"}\n{"a":1}\n'))
    assert "more than 8,000,000 bytes" in only.reason


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.jsonl", "", JSONL),
        ("A.NDJSON", "", JSONL),
        ("a.json", "", JSON),
        ("a.csv", "{", CSV),
        ("a.tsv", "", TSV),
        ("-", '{"a":1}\n{"a":2}', JSONL),
        ("-", '\n\n  {\n"a":1}', JSON),
        ("-", '[{"a":1}]', JSON),
        ("-", "", JSONL),
        ("-", '\ufeff{"a":1}', JSONL),
    ],
)
def test_the_format_is_known_by_the_ending_or_the_beginning_of_json(name, text, expected):
    found, lines = detected(name, _lines(text))
    assert found == expected
    assert b"".join(lines).decode() == text.removeprefix("\ufeff")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *((text, "line 1 is not JSON") for text in ("a,b\n1,2", "a\tb\n1\t2", "<html>", "word", "---\na: 1")),
        ("\n\nx", "line 3 is not JSON"),
        *((text, "line 1 is not an event") for text in ("null", "12", '"a"', "true")),
    ],
)
def test_what_does_not_begin_as_json_is_not_guessed(text, problem):
    with pytest.raises(Invalid, match=problem):
        detected("-", _lines(text))
