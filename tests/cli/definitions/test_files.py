import io
import json
import os
import re
import sys
from pathlib import Path

import pytest

from rioni.cli.definitions.broker_rules import check_step
from rioni.cli.definitions.files import definitions_in
from rioni.cli.definitions.steps import step


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(**texts):
    for name, text in texts.items():
        path = Path(name.replace("__", "/").replace("_DOT_", "."))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names(*paths):
    found, problems = definitions_in(paths)
    assert not problems
    return [each.name for each in found]


def problems_of(*paths):
    return [str(each) for each in definitions_in(paths).problems]


def test_a_folder_has_all_files_at_any_depth_but_hidden_ones():
    write(
        d__b_DOT_yaml="name: b1\n---\nname: b2\n",
        d__a__x_DOT_yml="name: a",
        d__c_DOT_json='[{"name": "c1"}, {"name": "c2"}]',
        d__e_DOT_jsonl='{"name": "e1"}\n{"name": "e2"}\n',
        d__readme_DOT_md="# no definition",
        d___DOT_git__y_DOT_yaml="no: definition",
    )
    assert names("d") == ["a", "b1", "b2", "c1", "c2", "e1", "e2"]


def test_files_that_are_named_may_have_any_ending():
    write(one='{"name": "a"}\n\n {"name": "b"}', two="name: c")
    assert names("two", "one") == ["c", "a", "b"]


def test_standard_input_is_yaml_or_json(monkeypatch):
    for text in ("name: a\n---\nname: b", '{"name": "a"}{"name": "b"}'):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert names("-") == ["a", "b"]


def test_schema_files_are_read_and_are_no_definitions():
    write(
        d__a_DOT_yaml="name: a\nschema_file: schemas/a.json\n---\nname: b\nschema_file: b.avsc\n---\n"
        "name: c\nschema_file: c.yaml",
        d__schemas__a_DOT_json='{"type": "object"}\n',
        d__b_DOT_avsc='{"type": "record"}',
        d__c_DOT_yaml="type: object\nproperties: {on: {enum: [no]}}",
    )
    found, problems = definitions_in(["d"])
    assert not problems
    assert [each.members["schema"] for each in found] == [
        {"type": "json_schema", "schema": '{"type": "object"}\n'},
        {"type": "avro_schema", "schema": '{"type": "record"}'},
        {"type": "json_schema", "schema": '{"type": "object", "properties": {"on": {"enum": ["no"]}}}'},
    ]


def test_the_problems_of_all_files_are_found_together_with_their_lines():
    write(
        a_DOT_yaml="name: a\ncategory: bussiness\nparttition_strategy: hash\n---\nname: b\nlabels:\n  version: 1.0\n",
        b_DOT_json='{"name": "c",\n "name": "d"}',
        c_DOT_yaml="name: [\n",
        d_DOT_yaml="name: a\nschema_file: none.json",
        e_DOT_yaml="- 1",
        f_DOT_json='{"name": "g"}\n{"name": }',
        g_DOT_yaml="kind: topic\nname: x",
        h_DOT_yaml="kind: subscription\nowning_application: shop\nevent_types: a",
        i_DOT_json='{"name": NaN}',
    )
    found = problems_of(*sorted(path.name for path in Path().iterdir()), "missing.yaml")
    assert found == [
        'a.yaml:2: a: category: "bussiness" is not one of "business", "data" or "undefined"; did you mean business?',
        "a.yaml:3: a: unknown member parttition_strategy; did you mean partition_strategy?",
        'a.yaml:7: b: labels.version is a text: write "1.0", in quotes',
        'b.json:1: is not JSON: "name" is there twice',
        "c.yaml:1: while parsing a flow node did not find expected node content",
        "d.yaml:2: a: schema_file none.json can't be read: No such file or directory",
        "e.yaml:1: a definition is an object, with members such as name",
        "f.json:2: is not JSON: Expecting value",
        'g.yaml:1: kind is event-type or subscription, not "topic"',
        'h.yaml:3: shop/default of a: event_types: "a" is not of type "array"',
        "i.json:1: is not JSON: NaN",
        "missing.yaml:1: can't be read: No such file or directory",
    ]


def test_one_resource_is_defined_once():
    subscription = "kind: subscription\nowning_application: shop\nevent_types: "
    write(
        a_DOT_yaml=f"name: a\n---\n{subscription}[a, b]",
        b_DOT_yaml=f"name: a\n---\n{subscription}[b, a, a]\n---\n{subscription}[a]",
    )
    assert problems_of("a.yaml", "b.yaml") == [
        "b.yaml:1: a: is defined in a.yaml:1, too",
        "b.yaml:3: shop/default of b, a, a: is defined in a.yaml:3, too",
    ]


def test_files_that_are_no_text_are_problems():
    Path("a.yaml").write_bytes(b"name: \xff")
    Path("b.avsc").write_bytes(b"\xff")
    write(b_DOT_yaml="name: b\nschema_file: b.avsc")
    assert problems_of("a.yaml", "b.yaml") == [
        "a.yaml:1: is not UTF-8",
        "b.yaml:2: b: schema_file b.avsc is not UTF-8",
    ]


def test_a_file_has_an_end(monkeypatch):
    monkeypatch.setattr("rioni.cli.definitions.definition.FILE_BYTES_MAX", 10)
    write(a_DOT_yaml="name: abcdefghijk")
    assert problems_of("a.yaml") == ["a.yaml:1: has more than 10 bytes"]


def test_what_only_the_broker_sets_is_left_out_and_null_is_absent():
    document = {
        "name": "a",
        "created_at": "2026-01-01T00:00:00Z",
        "etag": "x",
        "authorization": None,
        "options": {"retention_time": None},
        "schema": {"schema": {"default": None}, "type": "json_schema", "version": "1.0.0", "created_at": None},
    }
    Path("a.json").write_text(json.dumps(document))
    (found,) = definitions_in(["a.json"]).found
    assert found.members == {
        "name": "a",
        "options": {},
        "schema": {"type": "json_schema", "schema": '{"default": null}'},
    }


def test_the_definitions_of_the_documentation_are_right():
    page = (Path(__file__).parents[3] / "docs/operating/definitions.md").read_text()
    write(page_DOT_yaml=re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    found, problems = definitions_in(["page.yaml"])
    assert not problems
    for each in found:
        check_step(step(each, None))
    assert [each.kind for each in found] == ["event-type", "subscription"]


SECRET = '{"description": "secret"}'


@pytest.mark.parametrize(
    "named",
    [
        "../secret.json",
        "../../secret.json",
        "schemas/../../secret.json",
        "{absolute}",
        "link.json",
        "folder/secret.json",
    ],
)
@pytest.mark.parametrize("path", ["d", "d/a.yaml", "-"])
def test_a_schema_outside_of_the_folder_of_the_definitions_is_never_read(tmp_path, monkeypatch, named, path):
    """Reference values-yaml#file-names."""
    write(secret_DOT_json=SECRET, other__secret_DOT_json=SECRET)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "link.json").symlink_to("../secret.json")
    (tmp_path / "d" / "folder").symlink_to("../other")
    text = f"name: a\nschema_file: {named.format(absolute=tmp_path / 'secret.json')}\n"
    write(d__a_DOT_yaml=text)
    if path == "-":
        monkeypatch.chdir("d")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    found, problems = definitions_in([path])
    assert not found
    assert any("is outside of the folder" in str(each) or "No such file" in str(each) for each in problems)
    assert SECRET not in str(problems)


def test_a_schema_may_be_anywhere_in_the_folder_that_is_named():
    write(d__types__a_DOT_yaml="name: a\nschema_file: ../schemas/a.json", d__schemas__a_DOT_json="{}")
    Path("d/types/b.json").symlink_to("../schemas/a.json")
    assert names("d") == ["a"]
    assert problems_of("d/types/a.yaml") == [
        "d/types/a.yaml:2: a: d/types/../schemas/a.json is outside of the folder d/types; name a folder that has both"
    ]


def test_a_definition_that_is_a_link_out_of_the_folder_is_a_problem():
    write(secret_DOT_yaml="name: secret", d__a_DOT_yaml="name: a")
    Path("d/b.yaml").symlink_to("../secret.yaml")
    assert problems_of("d") == ["d/b.yaml:1: d/b.yaml is outside of the folder d; name a folder that has both"]
    # A link that the user names is followed.
    assert names("d/b.yaml") == ["secret"]


def test_a_schema_that_is_a_pipe_is_a_problem_and_is_not_waited_for():
    write(d__a_DOT_yaml="name: a\nschema_file: pipe.json")
    os.mkfifo("d/pipe.json")
    assert problems_of("d") == ["d/a.yaml:2: a: d/pipe.json is no file"]
