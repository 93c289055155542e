import jsonschema_rs
import msgspec
import pytest

from rioni.cli.definitions.definition import Definition, definition, dotted, json_schema
from rioni.cli.terminal.json_and_yaml import read
from rioni.wire.event_types import EventType
from rioni.wire.subscriptions import Subscription


def problems(text):
    (document,) = read(text)
    found = definition(document, "f.yaml")
    assert isinstance(found, list)
    return [each.text for each in found]


def test_the_json_schema_is_valid_and_knows_each_member_of_the_api():
    schema = json_schema()
    jsonschema_rs.meta.validate(schema)
    for name, model, more in (
        ("event_type", EventType, {"kind", "schema_file", "json_schema"}),
        ("subscription", Subscription, {"kind"}),
    ):
        properties = schema["definitions"][name]["properties"]
        assert set(properties) == {field.name for field in msgspec.structs.fields(model)} | more
        read_only = {member for member, each in properties.items() if each.get("readOnly")} - {"json_schema"}
        assert read_only == model.NOT_SENT


def test_the_json_schema_as_a_whole_tells_the_kinds_apart():
    validator = jsonschema_rs.validator_for(json_schema())
    assert validator.is_valid({"name": "a"})
    assert validator.is_valid({"kind": "event-type", "name": "a", "category": "data"})
    assert validator.is_valid({"kind": "subscription", "owning_application": "shop", "event_types": ["a"]})
    assert validator.is_valid({"owning_application": "shop", "event_types": ["a"]})
    assert not validator.is_valid({"kind": "event-type", "owning_application": "shop", "event_types": ["a"]})
    assert not validator.is_valid({"kind": "subscription", "name": "a"})
    assert not validator.is_valid({"name": "a", "event_types": ["a"]})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x: 1", ["name is missing", "unknown member x; there are kind, name"]),
        ("name: a\nschema: {type: object}", ["schema.schema is missing", "schema.type: "]),
        ("name: a\nschema: {schema: {}, tipe: avro_schema}", ["unknown member schema.tipe; did you mean type?"]),
        ("name: a\nauthorization: {admins: [{data_type: user, valu: x}]}", [
            "authorization.admins[0].value is missing",
            "authorization.readers is missing",
            "authorization.writers is missing",
            "unknown member authorization.admins[0].valu; did you mean value?",
        ]),
        ("name: a\nschema: {schema: {}}\nschema_file: x", ["schema and schema_file are both given"]),
        ("name: a\nlabels: {example.org/x: true}", ['labels["example.org/x"] is a text: write "true", in quotes']),
        ("name: a\ndefault_statistic: {read_parallelism: 0}", [
            "default_statistic.message_size is missing",
            "default_statistic.messages_per_minute is missing",
            "default_statistic.read_parallelism: 0 is less than the minimum of 1",
            "default_statistic.write_parallelism is missing",
        ]),
        ("kind: [subscription]", ["kind is event-type or subscription"]),
    ],
)  # fmt: skip
def test_all_that_is_wrong_with_a_definition_is_said(text, expected):
    found = problems(text)
    assert len(found) == len(expected)
    for one, other in zip(sorted(found), sorted(expected), strict=True):
        assert one.startswith(other)


def test_what_has_event_types_is_a_subscription():
    (document,) = read("owning_application: shop\nevent_types: [b, a]")
    found = definition(document, "f.yaml")
    assert (found.kind, found.key) == ("subscription", ("subscription", "shop", "default", "a", "b"))


def test_a_schema_may_be_an_object_or_a_text():
    for text in ("{a: [1, no]}", """'{"a": [1, "no"]}'"""):
        (document,) = read(f"name: x\nschema:\n  schema: {text}")
        found = definition(document, "f.yaml")
        assert isinstance(found, Definition)
        assert found.members["schema"] == {"type": "json_schema", "schema": '{"a": [1, "no"]}'}


def test_paths_are_dotted_where_names_allow():
    assert dotted(("a_b", "$ref", 0, "x-y", "a.b", "")) == 'a_b.$ref[0].x-y["a.b"][""]'
