import json
from inspect import isfunction, signature

import fastjsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from rioni.domain.errors import InvalidFields, Malformed
from rioni.http.bodies import body_schemas, parsing
from tests.support.builders import event_type_body, event_type_spec


def encoded(**members):
    return json.dumps(members).encode()


class Members(list):
    """The names and values of an object, in which names may be there twice."""


def written(value, ascii_only):
    def text(value):
        if isinstance(value, Members):
            return "{" + ",".join(f"{text(name)}: {text(each)}" for name, each in value) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(text, value)) + "]"
        return json.dumps(value, ensure_ascii=ascii_only)

    return text(value).encode()


def repeats(value):
    if isinstance(value, Members):
        return len({name for name, _ in value}) < len(value) or any(repeats(each) for _, each in value)
    return isinstance(value, list) and any(map(repeats, value))


def test_an_event_type_is_parsed_into_the_domain_type():
    assert parsing.event_type_spec(json.dumps(event_type_body()).encode()) == event_type_spec()


def test_null_means_absent_except_where_the_two_differ():
    nulls = parsing.event_type_spec(encoded(name=None, labels=None, partition_strategy=None))
    assert (nulls.name, nulls.labels, nulls.partition_strategy) == (None, None, None)
    assert parsing.event_type_spec(b"{}").partition_strategy is UNSET


def test_unknown_members_are_ignored():
    assert parsing.event_type_spec(encoded(name="a", created_at=1, anything=[])).name == "a"


@pytest.mark.parametrize(
    "read",
    [
        value
        for value in vars(parsing).values()
        if isfunction(value) and value.__module__ == parsing.__name__ and "body" in signature(value).parameters
    ],
)
@pytest.mark.parametrize("body", [b'{"a":1,"\\u0061":1}', b'[{"a":{"b":1,"b":2}}]'])
def test_no_member_is_there_twice(read, body):
    """Reference common#json-bodies."""
    arguments = [body if name == "body" else {} for name, each in signature(read).parameters.items()]
    with pytest.raises(Malformed, match="Duplicate key"):
        read(*arguments)


_STRINGS = st.text('ab"\\é\x1f', max_size=2)
_NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.recursive(
        st.none() | st.booleans() | _NUMBERS | _STRINGS,
        lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(_STRINGS, inner), max_size=3).map(Members),
        max_leaves=8,
    ),
    st.booleans(),
)
def test_any_json_without_a_member_twice_is_read(value, ascii_only):
    body = written(value, ascii_only)
    if repeats(value):
        with pytest.raises(Malformed, match="Duplicate key"):
            parsing.json_body(body)
    else:
        parsing.json_body(body)


def test_all_missing_members_of_inner_objects_are_named_together():
    """Reference common#field-violations, authorization#attributes."""
    body = encoded(
        default_statistic={"message_size": 1},
        event_owner_selector={"type": "path"},
        authorization={"admins": [{}], "readers": []},
    )
    with pytest.raises(InvalidFields) as caught:
        parsing.event_type_spec(body)
    assert [path for path, _ in caught.value.violations] == [
        "authorization.writers",
        "authorization.admins[0].data_type",
        "authorization.admins[0].value",
        "default_statistic.messages_per_minute",
        "default_statistic.read_parallelism",
        "default_statistic.write_parallelism",
        "event_owner_selector.name",
        "event_owner_selector.value",
    ]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"nope", "not valid JSON"),
        (b"1", "the body must be object"),
        (encoded(name=[]), "name must be string or null"),
        (encoded(options={"retention_time": "x"}), "options.retention_time must be integer or null"),
        (encoded(options={"retention_time": 2**70}), "must be smaller than or equal to 9223372036854775807"),
        (encoded(annotations={"a": 1}), "annotations.a must be string"),
        (encoded(enrichment_strategies=[1]), "enrichment_strategies.0 must be string"),
        (encoded(cleanup_policy="x"), "Possible values: [delete, compact, compact_and_delete]"),
    ],
)
def test_a_wrong_json_type_is_named(body, detail):
    with pytest.raises(Malformed) as caught:
        parsing.event_type_spec(body)
    assert detail in str(caught.value)


def test_cursors_need_all_their_members():
    good = {"event_type": "a", "partition": "0", "offset": "0", "cursor_token": ""}
    assert parsing.committed_cursors(encoded(items=[good])) == [good]
    with pytest.raises(InvalidFields) as caught:
        parsing.committed_cursors(encoded(items=[good, {"offset": ""}]))
    assert caught.value.violations == (
        ("items[1].partition", "cursor partition cannot be empty"),
        ("items[1].offset", "cursor offset cannot be empty"),
        ("items[1].event_type", "must not be null"),
        ("items[1].cursor_token", "must not be null"),
    )
    with pytest.raises(InvalidFields):
        parsing.committed_cursors(b"{}")


def test_a_feature_without_a_switch_is_off():
    assert parsing.feature(encoded(feature="x")) == ("x", False)
    with pytest.raises(Malformed):
        parsing.feature(encoded(enabled=True))


SHAPES = {name: each for name, each in vars(body_schemas).items() if isinstance(each, body_schemas.Shape)}


def integers(schema, path=()):
    """The paths of the integers of a shape; `0` stands for an item."""
    if "integer" in schema.get("type", ()):
        yield path
    for name, each in schema.get("properties", {}).items():
        yield from integers(each, (*path, name))
    if "items" in schema:
        yield from integers(schema["items"], (*path, 0))


INTEGERS = [(name, path) for name, each in SHAPES.items() for path in integers(each.schema)]


def body_with(path, value):
    for name in reversed(path):
        value = [value] if name == 0 else {name: value}
    return value


@pytest.mark.parametrize(("shape", "path"), INTEGERS)
def test_a_whole_number_is_an_integer_however_it_is_written(shape, path):
    for text in ("1.0", "1", "1e0"):
        body = body_with(path, json.loads(text))
        SHAPES[shape](body)
        assert repr(body) == repr(body_with(path, 1))
    for value in (1.5, "1", True, 1e300):
        with pytest.raises(fastjsonschema.JsonSchemaValueException):
            SHAPES[shape](body_with(path, value))


def test_the_shapes_have_integers():
    assert len(INTEGERS) > 8


def test_numbers_in_an_event_type_may_have_a_fraction_of_zero():
    statistic = dict.fromkeys(("messages_per_minute", "message_size", "read_parallelism", "write_parallelism"), 2.0)
    spec = parsing.event_type_spec(encoded(default_statistic=statistic, options={"retention_time": 86400000.0}))
    assert repr((spec.default_statistic.read_parallelism, spec.options.retention_time)) == "(2, 86400000)"


def test_events_on_which_a_filter_is_tried_keep_their_numbers():
    body = encoded(filter="true", events=[{"a": 1.0}])
    assert bytes(parsing.filter_evaluation(body)[1][0]) == b'{"a":1.0}'
