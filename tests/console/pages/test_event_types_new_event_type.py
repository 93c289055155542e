"""The form that creates an event type: its result, and errors next to their fields, with no input lost."""

import json
import re
from html import unescape

import pytest

from tests.console.markup import forms


PAGE = "/console/create-event-type"
VALID = {
    "action": "create",
    "name": "console.formed",
    "owning_application": "shop",
    "category": "business",
    "schema": '{"properties": {"customer": {"type": "object", "properties": {"id": {"type": "string"}}}}}',
    "compatibility_mode": "forward",
    "partition_strategy": "hash",
    "partition_key_fields": "customer.id",
    "partitions": "3",
}


def errors(text):
    """The text next to each field."""
    return {
        name: unescape(said)
        for name, said in re.findall(r'<span class="field-error" id="error-(\w+)">(.*?)</span>', text, re.DOTALL)
    }


def test_an_event_type_is_created(visitor, api):
    answer = visitor.post(PAGE, VALID)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/console/event-types/console.formed"
    found = api.get("/event-types/console.formed").json()
    assert found["partition_key_fields"] == ["customer.id"]
    assert found["category"] == "business"
    assert json.loads(found["schema"]["schema"]) == json.loads(VALID["schema"])
    assert len(api.get("/event-types/console.formed/partitions").json()) == 3
    assert "console.formed is created" in visitor.get("/console/event-types/console.formed").text
    refused = visitor.post(PAGE, VALID)
    assert refused.status_code == 409
    assert list(errors(refused.text)) == ["name"]


@pytest.mark.parametrize("category", ["business", "data", "undefined"])
def test_what_the_form_begins_with_is_valid(visitor, api, category):
    page = visitor.get(PAGE).text
    (form,) = [each for each in forms(page) if "create" in each.actions]
    typed = {"action": "create", "name": f"console.defaults-{category}", "owning_application": "shop"}
    chosen = dict(re.findall(r'<select name="(\w+)".*?<option value="([^"]*)"', page))
    answer = visitor.post(PAGE, {**form.fields, **chosen, **typed, "category": category})
    assert answer.status_code == 303, errors(answer.text)
    assert api.get(f"/event-types/console.defaults-{category}").json()["category"] == category


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("name", "a b", "format not allowed"),
        ("name", "", "name"),
        ("owning_application", " ", "Name the application"),
        ("category", "nonsense", "nonsense"),
        ("schema", "{", "This is not JSON"),
        ("schema", "[]", "schema"),
        ("schema", '{"type": 3}', '"type" of root element'),
        ("schema", '{"type": "array"}', '"type" of root element'),
        ("compatibility_mode", "nonsense", "nonsense"),
        ("partition_strategy", "nonsense", "nonsense"),
        ("partition_key_fields", "", "partition_key_fields"),
        ("partition_key_fields", "of.nobody", "absent in schema"),
        ("partitions", "0", "whole number"),
        ("partitions", "many", "whole number"),
    ],
)
def test_an_error_stands_beside_its_field_and_nothing_that_was_typed_is_lost(visitor, api, field, typed, said):
    form = {**VALID, "name": "console.refused", field: typed}
    answer = visitor.post(PAGE, form)
    assert answer.status_code in (400, 422)
    found = errors(answer.text)
    assert list(found) == [field]
    assert said in found[field]
    assert re.search(rf'name="{field}"[^>]* aria-invalid="true" aria-describedby="error-{field}"', answer.text)
    (shown,) = [each for each in forms(answer.text) if "create" in each.actions]
    for name in ("name", "owning_application", "partition_key_fields", "partitions"):
        assert unescape(shown.fields[name]) == form[name]
    assert unescape(shown.fields["schema"]) == form["schema"]
    for name in {"category", "compatibility_mode", "partition_strategy"} - {field}:
        assert f'<option value="{form[name]}" selected' in answer.text
    assert api.get("/event-types/console.refused").status_code == 404


def test_what_is_no_json_is_said_with_its_line(visitor):
    answer = visitor.post(PAGE, VALID | {"schema": '{\r\n  "title": "a",\r\n}'})
    assert (
        errors(answer.text)["schema"] == "This is not JSON: trailing comma is not allowed: line 2 column 15 (char 16)"
    )


def test_a_schema_of_several_lines_is_stored_as_it_was_typed(visitor, api):
    # Browsers send such line ends, unless scripts do.
    typed = '{\r\n  "title": "a"\r\n}'
    form = VALID | {
        "name": "console.lines",
        "partition_strategy": "random",
        "partition_key_fields": "",
        "schema": typed,
    }
    assert visitor.post(PAGE, form).status_code == 303
    assert api.get("/event-types/console.lines").json()["schema"]["schema"] == '{\n  "title": "a"\n}'


def test_what_was_can_t_be_created(visitor, event_type, api):
    event_type("console.before")
    position = api.get("/audit", params={"resource": "event-type:console.before"}).json()["items"][0]["position"]
    assert 'value="create"' not in visitor.get(PAGE, params={"as_of": position}).text
    assert "create-event-type" not in visitor.get("/console/event-types", params={"as_of": position}).text
