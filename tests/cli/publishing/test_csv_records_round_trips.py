"""CSV written by other programs is read as the same event, or refused: reference values-csv#round-trips."""

import csv
import io
import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.cli.publishing.csv_records import csv_events
from rioni.cli.publishing.records import Unreadable, lines_of
from tests.support.value_tables import rows_of


ABSENT = "absent"
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["", "007", "1e400", "yes", "null", "NaN", "=1+1", "@x", "2026-01-31", " a ", ",;\t", '"', "\r\n", "\r", "\u2028"]
)
NUMBERS = st.decimals(allow_nan=False, allow_infinity=False).map(lambda number: str(number).lower())
VALUES = {
    "text": TEXTS.map(json.dumps),
    "integer": st.integers().map(str),
    "number": NUMBERS,
    "boolean": st.sampled_from(["true", "false"]),
    "json": st.recursive(
        st.just("null") | NUMBERS | st.text(max_size=5).map(json.dumps),
        lambda inner: st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
    ),
}
KINDS = {"text": "string", "json": "array", "integer": "integer", "number": "number", "boolean": "boolean"}


def exact(text):
    return json.loads(text, parse_float=Decimal)


def cell(schema, value):
    if value in (ABSENT, "null"):
        return ""
    return json.loads(value) if "string" in schema["type"] else value


def read(names, schemas, rows, **options):
    text = io.StringIO()
    csv.writer(text, **options).writerows([names, *rows])
    document = {"properties": dict(zip(names, schemas, strict=True))}
    delimiter = options.get("delimiter", ",")
    return list(csv_events(lines_of(io.BytesIO(text.getvalue().encode())), {}, document, delimiter=delimiter))


@pytest.mark.parametrize(("schema", "value", "expected"), rows_of("values-csv", "Round trips"))
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_the_table_holds(schema, value, expected, quoting):
    schema = json.loads(schema)
    (found,) = read(["id", "x"], [{"type": "string"}, schema], [["A", cell(schema, value)]], quoting=quoting)
    if expected.startswith("error: "):
        assert isinstance(found, Unreadable)
        assert expected.removeprefix("error: ") in found.reason
        return
    wanted = value if expected == "equal" else expected
    event = exact(found.text)
    assert event == {"id": "A"} | ({} if wanted == ABSENT else {"x": exact(wanted)})


@given(data=st.data(), delimiter=st.sampled_from(",\t"), quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
def test_an_event_is_read_as_it_was_written_or_refused(data, delimiter, quoting):
    kinds = data.draw(st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=4))
    names = [f"x{number}" for number in range(len(kinds))]
    schemas = [{"type": KINDS[kind]} for kind in kinds]
    values = [data.draw(VALUES[kind]) for kind in kinds]
    row = [cell(schema, value) for schema, value in zip(schemas, values, strict=True)]
    found = read(names, schemas, [row], delimiter=delimiter, quoting=quoting)
    # A line with nothing but an empty cell is an empty line.
    for each in found:
        if isinstance(each, Unreadable):
            assert any(word in each.reason for word in ("too big", "NUL", "surrogate", "not JSON")), each
        else:
            wanted = dict(zip(names, values, strict=True))
            # An empty cell is null only where the schema says so: none of these does.
            assert exact(each.text) == {name: exact(value) for name, value in wanted.items() if value != "null"}
    assert len(found) == 1


@given(cells=st.lists(TEXTS, min_size=2, max_size=4), delimiter=st.sampled_from(",\t"))
def test_a_row_that_is_refused_is_kept_as_a_line_with_the_same_cells(cells, delimiter):
    (found,) = read(["id"], [{"type": "string"}], [cells], delimiter=delimiter)
    if "NUL" not in found.reason:
        assert next(csv.reader(io.StringIO(found.text.decode(), newline=""), delimiter=delimiter)) == cells
