import json

import pytest
from msgspec import UNSET

from rioni.domain.errors import InvalidFields, Malformed
from rioni.http.bodies import parsing
from tests.support.builders import event_type_body, event_type_spec


def encoded(**members):
    return json.dumps(members).encode()


def test_an_event_type_is_parsed_into_the_domain_type():
    assert parsing.event_type_spec(json.dumps(event_type_body()).encode()) == event_type_spec()


def test_null_means_absent_except_where_the_two_differ():
    nulls = parsing.event_type_spec(encoded(name=None, labels=None, partition_strategy=None))
    assert (nulls.name, nulls.labels, nulls.partition_strategy) == (None, None, None)
    assert parsing.event_type_spec(b"{}").partition_strategy is UNSET


def test_unknown_members_are_ignored():
    assert parsing.event_type_spec(encoded(name="a", created_at=1, anything=[])).name == "a"


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
        (encoded(options={"retention_time": 2**70}), "Expected"),
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
