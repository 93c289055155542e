import pytest

from rioni.domain.event_types.event_type import annotation_violations, label_violations


@pytest.mark.parametrize("key", ["a", "a-b_c.d", "nakadi.io/a", "x" * 63, "sub.domain.example/Name1"])
def test_valid_keys_are_accepted(key):
    assert list(annotation_violations({key: ""})) == []


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "Key cannot be empty"),
        ("Upper.Case/a", "Key name should be an optional lowercase domain name with path"),
        ("a/b/c", "Key name should be an optional lowercase domain name with path"),
        ("x" * 64, "Key name cannot be more than 63 characters."),
        ("p" * 254 + "/a", "Key prefix cannot be more than 253 characters."),
        ("-a", "Key name should start and end with a letter or a digit"),
        ("prefix/", "Key name should start and end with a letter or a digit"),
    ],
)
def test_invalid_keys_are_named(key, message):
    """Reference event-types#annotations-and-labels."""
    assert (f"labels[{key}]", message) in list(label_violations({key: ""}))


@pytest.mark.parametrize("violations", [annotation_violations, label_violations])
def test_an_empty_key_gets_both_messages(violations):
    assert [message for _, message in violations({"": ""})] == [
        "Key cannot be empty",
        "Key name should start and end with a letter or a digit",
    ]


def test_annotations_are_measured_in_bytes():
    assert list(annotation_violations({"a": "ä" * 500})) == []
    assert list(annotation_violations({"a": "ä" * 501})) == [("annotations[a]", "size must be between 0 and 1000")]


@pytest.mark.parametrize("value", ["", "a", "A-b_c.9"])
def test_valid_label_values_are_accepted(value):
    assert list(label_violations({"a": value})) == []


@pytest.mark.parametrize(
    ("value", "message"),
    [("x" * 64, "size must be between 0 and 63"), ("-a", "Should contain only allowed symbols")],
)
def test_invalid_label_values_are_named(value, message):
    assert list(label_violations({"a": value})) == [("labels[a]", message)]
