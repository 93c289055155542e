import json
from typing import Any

import pytest

from rioni.domain.breaking_example import SCHEMA_CHARACTERS_MAX, breaking_example
from tests.domain.test_schema_diff import INTEGER, NUMBER, STRING, array, number, props, string


def example(original: dict[str, Any], submitted: dict[str, Any], mode: str = "forward") -> dict[str, Any] | None:
    return breaking_example(json.dumps(original), json.dumps(submitted), original_mode=mode, submitted_mode=mode)


@pytest.mark.parametrize(
    ("original", "submitted", "event"),
    [
        (props(a=STRING), props(a=INTEGER), {"a": "text"}),
        (props(a=NUMBER), props(a=INTEGER), {"a": 0.5}),
        (props(a=STRING), {**props(a=STRING), "required": ["a"]}, {}),
        (props(a=string(maxLength=9)), props(a=string(maxLength=5)), {"a": "xxxxxx"}),
        (props(a=number(minimum=3)), props(a=number(minimum=10)), {"a": 3}),
        (props(a={"enum": ["x", "y"]}), props(a={"enum": ["x"]}), {"a": "y"}),
        (props(a=array(items=STRING)), props(a=array(items=INTEGER)), {"a": ["text"]}),
        (props(a=array(items=STRING)), props(a=array(items=STRING, maxItems=1)), {"a": ["text", "x"]}),
        (props(a=string(format="date-time")), props(a=INTEGER), {"a": "2024-01-02T03:04:05Z"}),
        (
            {
                **props(a=STRING, b=props(c={"$ref": "#/definitions/d"})),
                "required": ["a"],
                "definitions": {"d": STRING},
            },
            {
                **props(a=STRING, b=props(c={"$ref": "#/definitions/d"})),
                "required": ["a"],
                "definitions": {"d": INTEGER},
            },
            {"a": "text", "b": {"c": "text"}},
        ),
    ],
)
def test_the_example_is_about_what_differs(original: Any, submitted: Any, event: dict[str, Any]) -> None:
    assert example(original, submitted) == event


def test_objects_are_closed_as_the_mode_says() -> None:
    assert example(props(a=STRING, b=STRING), props(a=STRING), "forward") is None
    assert example(props(a=STRING, b=STRING), props(a=STRING), "compatible") == {"b": "text"}


def test_schemas_that_require_themselves_for_ever_have_no_example() -> None:
    names = [f"p{index}" for index in range(20)]
    original = {"type": "object", **props(**{name: {"$ref": "#"} for name in names}), "required": names}
    assert example(original, {**original, "minProperties": 30}) is None


def test_large_schemas_have_no_example() -> None:
    large = {"description": "a" * SCHEMA_CHARACTERS_MAX}
    assert example({**props(a=STRING), **large}, {**props(a=INTEGER), **large}) is None
