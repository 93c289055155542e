import contextlib
import io
import json

import pytest

from rioni.cli.publishing.csv_records import csv_events, parse_types
from rioni.cli.publishing.records import EVENT_BYTES_MAX, Unreadable, lines_of
from rioni.domain.errors import Invalid


SCHEMA = {
    "properties": {
        "id": {"type": "string"},
        "note": {"type": ["string", "null"]},
        "count": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "paid": {"type": "boolean"},
        "tags": {"type": "array"},
        "either": {"type": ["string", "number"]},
        "customer": {"$ref": "#/definitions/customer"},
    },
    "definitions": {"customer": {"properties": {"age": {"type": "integer"}}}},
}


def _read(text, types=(), schema=SCHEMA, **options):
    return list(csv_events(lines_of(io.BytesIO(text.encode())), dict(types), schema, **options))


def _events(*arguments, **options):
    return [json.loads(each.text) for each in _read(*arguments, **options)]


def test_cells_have_the_types_of_the_schema():
    text = 'id,note,count,price,paid,tags,either,customer.age,other\n7,8,9,1.50,TRUE,"[1]",2,40,3\n'
    (event,) = _events(text)
    assert event == {
        "id": "7",
        "note": "8",
        "count": 9,
        "price": 1.5,
        "paid": True,
        "tags": [1],
        "either": "2",
        "customer": {"age": 40},
        "other": "3",
    }


def test_numbers_are_published_as_they_are_written():
    (record,) = _read("price\n12345678901234567.10\n")
    assert record.text == b'{"price":12345678901234567.10}'


def test_empty_cells_are_null_a_text_or_left_out():
    assert _events("id,note,count,price,other\n,,,,\n") == [{"id": "", "note": None, "price": None, "other": None}]


def test_types_of_the_user_are_stronger_than_the_schema():
    assert _events("id,other\n7,8\n", {"id": "integer", "other": "json"}) == [{"id": 7, "other": 8}]


def test_rows_are_known_by_the_line_at_which_they_begin():
    records = _read('id,note\na,"b\nc"\n\nd,e\n')
    assert [(each.line, json.loads(each.text)["note"]) for each in records] == [(2, "b\nc"), (5, "e")]


def test_cells_may_be_separated_by_tabulators():
    assert _events("id\tcount\na,b\t3\n", delimiter="\t") == [{"id": "a,b", "count": 3}]


def test_a_byte_order_mark_is_no_part_of_the_first_name():
    assert _events("\ufeffid\na\n") == [{"id": "a"}]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\ufeff\ufeffid,note\na,b\n", 1),
        ("id,\ufeffnote\na,b\n", 1),
        ('\ufeff"\ufeffid"\na\n', 1),
        ("\ufeffid,note\na,b\n\ufeffid,note\nc,d\n", 3),
        ("\ufeffid,note\n\ufeffa,b\n", 2),
    ],
)
def test_a_byte_order_mark_of_another_file_is_an_error_with_its_line(text, line):
    with contextlib.ExitStack() as stack:
        if line == 1:
            stack.enter_context(pytest.raises(Invalid, match="line 1 has a byte order mark"))
        found = _read(text)
        (problem,) = [each for each in found if isinstance(each, Unreadable)]
        assert (problem.line, "begins with a byte order mark" in problem.reason) == (line, True)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("x,1.5,true,[]", "column count: '1.5' is not a whole number"),
        ("x,01,true,[]", "column count: '01' is not a whole number"),
        ("x,1,yes,[]", "column paid: 'yes' is not true or false"),
        ("x,1,true,[", "column tags: '[' is not JSON: Expecting value at position 1"),
        ("x,1,true", "the row has 3 cells, the header 4"),
    ],
)
def test_a_row_that_does_not_fit_is_reported_and_reading_goes_on(row, reason):
    first, second = _read(f"id,count,paid,tags\n{row}\ny,2,false,[]\n")
    assert first == Unreadable(2, reason, row.encode())
    assert json.loads(second.text)["id"] == "y"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (b'id\n"a', 2, "it is not CSV"),
        (b"id\na\n\xff\n", 3, "it is not UTF-8"),
        (b"id\n" + b"x" * (EVENT_BYTES_MAX + 1), 1, "more than 8,000,000 bytes"),
    ],
)
def test_what_is_not_csv_ends_the_reading(text, line, reason):
    *_, last = csv_events(lines_of(io.BytesIO(text)), {}, {})
    assert isinstance(last, Unreadable)
    assert last.line == line
    assert reason in last.reason


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("id,id", "twice"),
        ("a,a.b", "columns within it"),
        ("id,", "has no name"),
        ("a..b", "dots that separate nothing"),
        ("other", "There is no column id"),
        ("a;b", "a single column with ';'"),
        ("a|b", "a single column with '|'"),
        ("a\tb", "a single column with"),
    ],
)
def test_a_header_that_can_not_be_used_is_refused(header, reason):
    with pytest.raises(Invalid, match=reason):
        _read(f"{header}\n1\n", {"id": "text"} if header == "other" else {})


@pytest.mark.parametrize("text", ["", "\n", "\n\nid\n"])
def test_a_file_without_a_header_is_refused(text):
    with pytest.raises(Invalid, match="line 1 has to be a header"):
        _read(text)


@pytest.mark.parametrize(
    ("header", "types", "schema"),
    [
        ("x", {}, {}),
        ("x", {}, {"properties": {"metadata": {}}}),
        ("x,id", {}, SCHEMA),
        ("x", {"x": "text"}, SCHEMA),
        ("metadata.eid", {}, {"properties": {"metadata": {}, "id": {}}}),
        ("x", {}, {"allOf": [{"properties": {"x": {}}}]}),
    ],
)
def test_a_line_that_may_be_a_header_is_one(header, types, schema):
    assert len(_read(f"{header}\n{','.join('a' for _ in header.split(','))}\n", types, schema)) == 1


def test_schemas_that_refer_to_themselves_are_followed_once():
    schema = {"properties": {"a": {"$ref": "#/definitions/a"}}, "definitions": {"a": {"$ref": "#/definitions/a"}}}
    assert _events("a\n1\n", schema=schema) == [{"a": "1"}]


@pytest.mark.parametrize("text", ["price", "price=euro", "=number"])
def test_types_are_written_with_an_equals_sign(text):
    if text == "=number":
        assert parse_types(text) == {"": "number"}
        return
    with pytest.raises(Invalid, match="column=TYPE"):
        parse_types(text)


def test_names_of_columns_may_contain_equals_signs():
    assert parse_types("a=b=number, c=text,") == {"a=b": "number", "c": "text"}
