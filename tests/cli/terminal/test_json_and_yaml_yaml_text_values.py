"""The tables of values of YAML and JSON.

Reference values-yaml#yaml values-yaml#json
"""

import json
import re

import pytest

from rioni.cli.definitions.files import definitions_in, parsed
from rioni.cli.terminal.json_and_yaml import NotYaml
from tests.support.value_tables import rows_of, unescaped


@pytest.mark.parametrize(
    ("file", "text", "value"),
    [("a.yaml", *row) for row in rows_of("values-yaml", "YAML")]
    + [("a.json", *row) for row in rows_of("values-yaml", "JSON")],
)
def test_the_tables_hold(file, text, value):
    text = unescaped(text)
    if value.startswith("error: "):
        with pytest.raises(NotYaml, match=re.escape(value.removeprefix("error: "))):
            list(parsed(text, file))
        return
    (document,) = parsed(text, file)
    if value.startswith("object with the member"):
        assert list(document.value) == [value.split("`")[1]]
    else:
        # The types count, too: 1.0 is not true, and not 1.
        found = document.value.get("c", document.value["a"])
        assert json.dumps(found, ensure_ascii=False) == json.dumps(json.loads(value), ensure_ascii=False)


@pytest.mark.parametrize(
    ("text", "line"), [("a: x\n\0", 2), ("a: x\nb: 012", 2), ("# words\n%YAML 1.1\n---\na: x", 2), ("a: x\nb: !y z", 2)]
)
def test_an_error_names_its_line(text, line):
    with pytest.raises(NotYaml) as raised:
        list(parsed(text))
    assert raised.value.line == line


@pytest.mark.parametrize("text", ["null", "~", "12", "word", "<html>", "[]", "- 1"])
def test_a_document_is_an_object_or_an_error_whatever_it_is(text, tmp_path):
    for name in ("a.yaml", "a.json", "a"):
        (tmp_path / name).write_text(text)
        found, problems = definitions_in([str(tmp_path / name)])
        # An array of JSON has definitions, and this one has none.
        is_empty_array = text == "[]" and name != "a.yaml"
        assert (found, bool(problems)) == ([], not is_empty_array)
