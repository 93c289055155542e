import json

import pytest

from rioni.domain.avro.evolution import NAMED_MAX, evolve_avro_schema
from rioni.domain.errors import Invalid
from tests.support.avro import ORDER, record


OLD = record(("foo", "int"), ("bar", "string"))
WIDER = record(("foo", "int"), ("bar", "string"), ("baz", "string"))
NARROWER = record(("foo", "int"))
WITH_DEFAULT = record(("foo", "int"), ("bar", "string"), {"name": "baz", "type": "string", "default": ""})


def evolve(original, submitted, modes):
    before, _, after = modes.partition(" -> ")
    return evolve_avro_schema(
        original=json.dumps(original),
        submitted=json.dumps(submitted),
        original_mode=before,
        submitted_mode=after or before,
        version="1.2.3",
    )


@pytest.mark.parametrize(
    ("submitted", "modes"),
    [
        (WIDER, "none"),
        (NARROWER, "none"),
        (record(name="Other"), "none"),
        (NARROWER, "none -> forward"),
        (WIDER, "forward"),
        (WITH_DEFAULT, "forward"),
        (WITH_DEFAULT, "compatible"),
        (WITH_DEFAULT, "forward -> compatible"),
        (WIDER, "forward -> none"),
    ],
)
def test_changes_that_the_mode_allows_are_major_versions(submitted, modes):
    assert evolve(OLD, submitted, modes) == "2.0.0"


@pytest.mark.parametrize(
    ("submitted", "modes", "found"),
    [
        (NARROWER, "forward", "{ type:READER_FIELD_MISSING_DEFAULT_VALUE, location:/fields/1, message:bar }"),
        (NARROWER, "forward -> none", "{ type:READER_FIELD_MISSING_DEFAULT_VALUE, location:/fields/1, message:bar }"),
        (WIDER, "compatible", "{ type:READER_FIELD_MISSING_DEFAULT_VALUE, location:/fields/2, message:baz }"),
        (
            WIDER,
            "compatible -> forward",
            "{ type:READER_FIELD_MISSING_DEFAULT_VALUE, location:/fields/2, message:baz }",
        ),
        (
            WIDER,
            "forward -> compatible",
            "{ type:READER_FIELD_MISSING_DEFAULT_VALUE, location:/fields/2, message:baz }",
        ),
    ],
)
def test_changes_that_the_previous_mode_forbids_are_rejected(submitted, modes, found):
    with pytest.raises(Invalid) as caught:
        evolve(OLD, submitted, modes)
    assert str(caught.value) == f"Failed to evolve avro schema due to [{found}]"


@pytest.mark.parametrize("mode", ["none", "forward", "compatible"])
def test_an_equivalent_schema_is_no_new_version(mode):
    assert evolve(ORDER, ORDER | {"doc": "text"}, mode) is None


def test_a_long_list_is_truncated():
    many = record(*[(f"f{n}", "int") for n in range(NAMED_MAX + 5)])
    with pytest.raises(Invalid, match="and 5 more"):
        evolve(many, record(), "forward")
