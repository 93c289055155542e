"""YAML written by commands has the same values when commands, or readers of YAML 1.1, read it."""

import json
from decimal import Decimal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rioni.cli.app import app
from rioni.cli.definitions.definition import Definition, definition, document_of
from rioni.cli.definitions.files import parsed
from rioni.cli.terminal.json_and_yaml import written
from tests.support.command_tree import leaves
from tests.support.value_tables import rows_of


SPECIAL = (
    *("~", "=", "y", "no", "yes", "on", "null", "true", "007", "0o17", "1_000", "1:30", "1e400", "NaN", ".inf"),
    *("2026-01-31", "<<", "=1+1", "- a", "a: b", "# a", " a ", "'\"", "a\r\nb\n", "\0", "\x1b[2J", "\u2028\x85"),
    *("\ufeff", "\ud800"),
)
TEXTS = st.text(max_size=12) | st.sampled_from(SPECIAL)
NUMBERS = (
    st.integers().map(str)
    | st.decimals(allow_nan=False, allow_infinity=False).map(lambda number: str(number).replace("E+", "e"))
    | st.sampled_from(["1.50", "-0.0", "1e400", "1E-400", "12345678901234567.10", "9" * 400, "1e22"])
)
JSON = st.recursive(
    st.sampled_from(["null", "true", "false"]) | NUMBERS | TEXTS.map(json.dumps),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        # Names may be there twice.
        | st.lists(st.tuples(TEXTS.map(json.dumps), inner), max_size=3).map(
            lambda pairs: f"{{{', '.join(f'{name}: {each}' for name, each in pairs)}}}"
        )
    ),
    max_leaves=8,
)


def as_yaml(schema):
    members = {"name": "a", "schema": {"type": "json_schema", "schema": schema}}
    return written(document_of("event-type", members))


def exact(text):
    """A JSON value with all that its text says: names that are there twice, and each digit."""
    return json.loads(text, object_pairs_hook=lambda pairs: ("object", pairs), parse_float=Decimal)


def read_again(text):
    (document,) = parsed(text, "a.yaml")
    found = definition(document, "a.yaml")
    assert isinstance(found, Definition)
    return found.members["schema"]["schema"]


def check(schema):
    text = as_yaml(schema)
    assert exact(read_again(text)) == exact(schema)
    # Another reader sees what we see.
    (document,) = parsed(text)
    assert json.dumps(yaml.safe_load(text)) == json.dumps(document.value)


@given(value=JSON)
def test_a_schema_that_is_written_is_read_again(value):
    """Reference values-yaml#round-trips."""
    check(f'{{"default": {value}}}')


@pytest.mark.parametrize(("value", "expected"), rows_of("values-yaml", "Round trips of values"))
def test_the_table_of_values_holds(value, expected):
    """Reference values-yaml#round-trips-of-values."""
    schema = f'{{"default": {value}}}'
    check(schema)
    text = as_yaml(schema)
    if expected == "text":
        assert yaml.safe_load(text)["schema"]["schema"] == schema
    else:
        assert f"    default: {expected}\n" in text


def test_the_table_has_each_command_that_reads_or_writes_definitions():
    rows = {
        tuple(command.split()[1:]): (reads, writes) for command, reads, writes in rows_of("values-yaml", "Round trips")
    }
    commands = leaves(app)
    assert set(rows) <= set(commands)
    named = {
        words
        for words, command in commands.items()
        for each in command.params
        if any(word in f"{each.opts} {getattr(each, 'help', '')}" for word in ("yaml", "YAML", "the schema as JSON"))
    }
    assert named <= set(rows)
    assert {words for words, (_, writes) in rows.items() if "--yaml" in writes} == {
        words for words, command in commands.items() if any("--yaml" in each.opts for each in command.params)
    }
