import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.cli.terminal import json_and_yaml
from rioni.cli.terminal.json_and_yaml import NotYaml, read, written


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    ["no", "on", "1e3", "0o17", "1:30", "2026-01-31", "null", "~", "", ".5", "<<", "=", "- a", "a: b", "a\nb\n", "0x1F"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


@given(value=VALUES.filter(lambda value: value is not None))
def test_what_is_written_is_read_again(value):
    (document,) = read(written(value))
    assert json.dumps(document.value) == json.dumps(value)


def test_what_only_yaml_1_1_takes_for_something_else_is_a_text():
    text = "[no, on, 2026-01-31, 1:30, 1_000]"
    assert [each.value for each in read(text)] == [["no", "on", "2026-01-31", "1:30", "1_000"]]


def test_numbers_and_constants_are_those_of_yaml_1_2():
    text = "[1, -2, 0x1F, 0o17, 1e3, .5, 2., true, False, null, ~, '1', !!str 1]"
    assert [each.value for each in read(text)] == [[1, -2, 31, 15, 1000.0, 0.5, 2.0, True, False, None, None, "1", "1"]]


def test_names_of_members_are_texts_whatever_they_look_like():
    assert [each.value for each in read("404: a\non: b\n~: c")] == [{"404": "a", "on": "b", "~": "c"}]


def test_aliases_and_merges_stand_for_what_they_name():
    text = "a: &common {x: 1, y: 2}\nb:\n  <<: *common\n  y: 3\nc: *common"
    common = {"x": 1, "y": 2}
    assert [each.value for each in read(text)] == [{"a": common, "b": {"x": 1, "y": 3}, "c": common}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: &a {x: 1}\nb: &b {<<: *a, x: 2}\nc: *b", {"x": 2}),
        ("a: &a {x: 1}\nb: {<<: &b {<<: *a, x: 2}}\nc: *b", {"x": 2}),
        ("a: &a {<<: {x: 1, y: 1}, x: 2}\nb: &b {<<: *a, z: 3}\nc: {<<: *b}", {"x": 2, "y": 1, "z": 3}),
        ("a: &a {x: 1, y: 1}\nb: &b {x: 2}\nc: {<<: [*b, *a], z: 3}", {"x": 2, "y": 1, "z": 3}),
    ],
)
def test_own_members_win_over_merged_ones_wherever_a_mapping_is_used_again(text, expected):
    (document,) = read(text)
    assert document.value["c"] == expected


def test_merged_members_come_first_in_the_order_of_the_mappings():
    (document,) = read("a: &a {type: 1, x: 1, z: 1}\nb: &b {y: 2, type: 2}\nc: {z: 3, <<: [*a, *b], u: 3}")
    assert list(document.value["c"].items()) == [("type", 1), ("x", 1), ("y", 2), ("z", 3), ("u", 3)]


def test_a_merged_member_has_the_line_where_it_is_written():
    (document,) = read("a: &a\n  x: 1\n  y: 1\nb:\n  <<: *a\n  y: 2\nc: *a\n")
    assert [document.line_of(path) for path in (("b", "x"), ("b", "y"), ("c",), ("c", "y"))] == [2, 6, 7, 3]


def test_the_line_of_each_member_is_known():
    first, second = read("# words\na: 1\n---\nb:\n  c:\n  - x\n  - y: 1\n")
    assert (first.line, first.line_of(("a",))) == (2, 2)
    assert second.line_of(("b", "c")) == 5
    assert second.line_of(("b", "c", 1, "y")) == 7
    assert second.line_of(("b", "c", 1, "unknown", 3)) == 7
    assert second.line_of(("unknown",)) == 4


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a: 1\nb: [", 2, "expected"),
        ("a: 1\nb: 2\na: 3", 3, '"a" is there twice'),
        ("a: 1\nb: .inf", 2, "JSON"),
        ("a: .nan", 1, "JSON"),
        ("a: 1\n<<: {b: 1, b: 2}", 2, '"b" is there twice'),
        ("a: 1\n<<: !other {b: 1}", 2, "tag"),
        ("a: &a {<<: *a}", 1, "contain themselves"),
        ("a: 1e999", 1, "JSON"),
        ("a: !!bool maybe", 1, "JSON"),
        ("a: !secret x", 1, "tag"),
        ("a: 1\n? [b]\n: 2", 2, "text"),
        ("a: \x07", 1, "control characters|not allowed"),
        ("a: &a [*a]", 1, "contain themselves"),
        ("[" * 5_000, 1, "nest|expected"),
        ("a: 1\n\tb: 2", 2, "tab"),
    ],
)
def test_an_error_names_its_line(text, line, reason):
    with pytest.raises(NotYaml, match=reason) as raised:
        list(read(text))
    assert raised.value.line == line


@pytest.mark.parametrize(
    ("first", "another"), [("[1, 1, 1, 1, 1]", "[{}]"), ("{x: 1}", "{{<<: [{}]}}")], ids=["lists", "merges"]
)
def test_aliases_do_not_multiply_without_end(monkeypatch, first, another):
    monkeypatch.setattr(json_and_yaml, "VALUES_MAX", 1_000)
    lines = [f"- &a0 {first}"]
    lines += [f"- &a{n} {another.format(', '.join([f'*a{n - 1}'] * 5))}" for n in range(1, 12)]
    with pytest.raises(NotYaml, match="at most"):
        list(read("\n".join(lines)))
