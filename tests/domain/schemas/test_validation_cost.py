import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.errors import Invalid
from rioni.domain.schemas.checks import check_schema
from rioni.domain.schemas.effective_schema import EffectiveSchema
from rioni.domain.schemas.patterns import PATTERNS_MAX
from rioni.domain.schemas.validation import EventValidator
from rioni.domain.schemas.validation_cost import ValidationCost


HEAVY = "((a{1,100}){1,50})x$"
STRING = {"type": "string"}


def effective(schema: dict) -> EffectiveSchema:
    return check_schema(json.dumps(schema), name="a", category="undefined", compatibility_mode="forward")


def refusal(schema: dict) -> str:
    with pytest.raises(Invalid) as caught:
        effective(schema)
    return str(caught.value)


@given(st.lists(st.integers(2, 3_000), max_size=20), st.sampled_from([{}, {"properties": {"a": {"pattern": HEAVY}}}]))
def test_a_batch_is_split_into_small_portions_in_order(sizes: list[int], schema: dict) -> None:
    work = ValidationCost(effective(schema))
    portions = list(work.portions(sizes))
    assert [index for portion in portions for index in range(portion.start, portion.stop)] == list(range(len(sizes)))
    for portion in portions:
        assert sum(sizes[portion]) <= work.portion_bytes or portion.stop - portion.start == 1


def test_ordinary_batches_are_validated_at_once() -> None:
    schema = {"properties": {f"p{number}": STRING for number in range(50)}, "required": ["p0"]}
    assert ValidationCost(effective(schema)).portion_bytes > 500_000


TEXT = "a" * 100_000


@pytest.mark.parametrize(
    ("schema", "event", "too_much"),
    [
        ({"properties": {"a": {"pattern": HEAVY}}}, {"a": TEXT}, True),
        ({"properties": {"a": {"pattern": HEAVY}}}, {"a": "aax", "b": TEXT}, False),
        ({"properties": {"a": {"pattern": HEAVY}}}, {"a": ["a" * 500] * 200}, False),
        ({"properties": {"a": {"items": {"pattern": HEAVY}}}}, {"a": ["a" * 500] * 200}, True),
        ({"properties": {"a": {"pattern": "^[A-Za-z0-9+/]*$"}}}, {"a": TEXT}, False),
        ({"patternProperties": {HEAVY: {}}}, {TEXT: 1}, True),
        ({"patternProperties": {HEAVY: {}}}, {"a": TEXT}, False),
        ({"properties": {"a": {"format": "date-time"}}}, {"a": TEXT * 9}, False),
        ({"properties": {"a": {"items": {"allOf": [{}] * 3_000}}}}, {"a": [1] * 100_000}, True),
        ({"properties": {"a": {"items": {"uniqueItems": True}}}}, {"a": list(range(100_000))}, False),
    ],
    ids=[
        "a long text under a heavy pattern",
        "another text is long",
        "the pattern is about strings",
        "many texts under a heavy pattern",
        "a long text under a light pattern",
        "long names under a heavy pattern",
        "a short name under a heavy pattern",
        "a format of our own",
        "many schemas for many values",
        "few schemas for many values",
    ],
)
def test_events_that_would_take_too_long_are_detected_beforehand(schema: dict, event: dict, too_much: bool) -> None:
    """Reference schemas#large-events."""
    assert ValidationCost(effective(schema)).is_too_much(event) == too_much


PLACES = {
    "properties": lambda inner: ({"properties": {"a": inner}}, {"a": TEXT}),
    "patternProperties": lambda inner: ({"patternProperties": {"^a": inner}}, {"a": TEXT}),
    "additionalProperties": lambda inner: (
        {"properties": {"b": {}}, "patternProperties": {"^c": {}}, "additionalProperties": inner},
        {"a": TEXT, "b": 1, "c": 1},
    ),
    "propertyNames": lambda inner: ({"propertyNames": inner}, {TEXT: 1}),
    "dependencies": lambda inner: ({"dependencies": {"a": {"properties": {"a": inner}}}}, {"a": TEXT}),
    "items": lambda inner: ({"properties": {"a": {"items": inner}}}, {"a": [1, TEXT]}),
    "an item": lambda inner: ({"properties": {"a": {"items": [True, inner]}}}, {"a": [1, TEXT]}),
    "additionalItems": lambda inner: (
        {"properties": {"a": {"items": [{}], "additionalItems": inner}}},
        {"a": [1, TEXT]},
    ),
    "contains": lambda inner: ({"properties": {"a": {"contains": inner}}}, {"a": [1, TEXT]}),
    "$ref": lambda inner: (
        {"definitions": {"d": inner}, "properties": {"a": {"$ref": "#/definitions/d"}}},
        {"a": TEXT},
    ),
    "a reference to itself": lambda inner: (
        {
            "definitions": {"d": {**inner, "items": {"$ref": "#/definitions/d"}}},
            "properties": {"a": {"$ref": "#/definitions/d"}},
        },
        {"a": [[TEXT]]},
    ),
    **{
        keyword: lambda inner, keyword=keyword: ({"properties": {"a": {keyword: [{}, inner]}}}, {"a": TEXT})
        for keyword in ("allOf", "anyOf", "oneOf")
    },
    "not": lambda inner: ({"properties": {"a": {"not": inner}}}, {"a": TEXT}),
    "if": lambda inner: ({"properties": {"a": {"if": inner}}}, {"a": TEXT}),
    "else": lambda inner: ({"properties": {"a": {"if": {"type": "null"}, "else": inner}}}, {"a": TEXT}),
}
"""Schemas that apply another one to a text, with an event that has the text there."""
FAILING = (
    {"maxLength": 1},
    {"enum": ["a"]},
    {"const": "a"},
    {"not": {}},
    {"format": "email"},
    {"allOf": [{"minLength": 10**6}]},
)
"""Keywords that the text violates, to be combined with the expensive expression."""


@pytest.mark.parametrize("place", PLACES)
def test_what_fails_first_hides_no_text_from_the_measure(place: str) -> None:
    """It is met where all violations are asked for."""
    for beside in ({}, *FAILING):
        schema, event = PLACES[place]({"pattern": HEAVY, **beside})
        schema["$schema"] = "http://json-schema.org/draft-07/schema#"
        around = {"required": ["missing"], "maxProperties": 0, "additionalProperties": False}
        assert ValidationCost(effective({**around, **schema})).is_too_much(event), beside


def test_the_measure_of_a_large_schema_takes_no_longer_than_the_schema() -> None:
    chain = {
        f"d{number}": {"properties": {"next": {"$ref": f"#/definitions/d{number + 1}"}}} for number in range(1_500)
    }
    schema = effective({"definitions": {**chain, "d1500": {"pattern": HEAVY}}, "$ref": "#/definitions/d0"})
    assert not ValidationCost(schema).is_too_much({"next": {"next": TEXT}})


def test_only_large_events_are_measured() -> None:
    validator = EventValidator(effective({"properties": {"a": {"pattern": HEAVY}}}))
    event = {"a": TEXT}
    assert not validator.takes_too_long(event, 10)
    assert validator.takes_too_long(event, 100_010)
    detail = "#: the event is too large for this schema: checking it would take too long"
    assert validator.first_error([{}, event], [2, 100_010], 999_000) == (1, detail)


def test_patterns_share_one_budget() -> None:
    """Reference schemas#schema-limits."""
    one = {"properties": {"a": {"pattern": r"^\p{L}{1,50}$"}}}
    assert EventValidator(effective(one)).is_valid({"a": "Ä"})
    many = {f"p{number}": {"pattern": rf"^\p{{L}}{{1,50}}{number}$"} for number in range(20)}
    assert "malformed, unsupported or too large" in refusal({"properties": many})
    small = {f"p{number}": {"pattern": f"^[a-z]{{1,63}}{number}$"} for number in range(PATTERNS_MAX)}
    effective({"properties": small})
    assert f"{PATTERNS_MAX + 1} different ones" in refusal({"properties": small | {"a": {"pattern": "^$"}}})


def test_the_cost_of_enumerated_objects_is_counted() -> None:
    effective({"properties": {"a": {"enum": [str(number) for number in range(20_000)]}}})
    objects = [{"k": number} for number in range(15_000)]
    assert "expand to more than" in refusal({"properties": {"a": {"enum": objects}}})
