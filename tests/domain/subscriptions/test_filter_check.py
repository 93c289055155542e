import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.errors import Invalid
from rioni.domain.schemas.effective_schema import effective_schema
from rioni.domain.subscriptions.event_filter import EventFilter
from rioni.domain.subscriptions.filter_check import check_filter, filter_warnings


ORDER = {
    "properties": {
        "total": {"type": "number"},
        "count": {"type": "integer"},
        "currency": {"enum": ["EUR", "GBP"]},
        "created_at": {"type": "string"},
        "coupon": {"type": ["string", "null"]},
        "paid": {"type": "boolean"},
        "kind": {"anyOf": [{"enum": [1]}, {"enum": ["a", None]}]},
        "tags": {"type": "array", "items": {"enum": ["new", "gift"]}},
        "items": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
        "a name": {"type": "object", "properties": {"x": {"type": "integer"}}},
        "address": {"type": "object"},
    }
}


def schema(document, mode="compatible", category="business"):
    return effective_schema(
        json.dumps(document), name="order.created", category=category, compatibility_mode=mode, cleanup_policy="delete"
    )


CLOSED = {"order.created": schema(ORDER)}
OPEN = {"order.created": schema(ORDER, mode="forward")}


@pytest.mark.parametrize(
    "expression",
    [
        "event.total > 1 && event.currency == 'EUR'",
        "event.total > 1.5 && event.count > 1.5",
        "1 < event.count",
        "event.coupon == null || event.coupon.startsWith('x')",
        "event.total != null",
        "has(event.coupon) && !event.paid",
        "event.items.exists(item, item.sku == 'a') && event.items[0].sku != 'b'",
        "event['a name'].x == 1 && event.address.exists(name, name == 'x')",
        "timestamp(event.created_at) > timestamp('2026-01-01T00:00:00Z')",
        "timestamp(event.created_at).getHours('Europe/Berlin') == 3",
        "timestamp(metadata.received_at) > timestamp(metadata.occurred_at) + duration('1h')",
        "event.metadata.event_type == 'order.created' && metadata.partition in ['0', '1']",
        "event.currency in ['EUR', 'USD'] && 'EUR' in [event.currency]",
        "event.kind == 1.0 || event.kind == 'a' || event.kind == null || event.kind in event.tags",
        "'new' in event.tags && event.tags[0] == 'gift' && event.tags.exists(tag, tag == 'gift')",
        "'x' in event['a name'] && event.currency > 'F' && event.currency == event.created_at",
        "double(event.total) * 1.5 > 3.0 && size(event.items) * 2 > event.count",
        "(event.paid ? event.total : event.count) > 3",
        "event.items == [] || event['a name'] == {'x': 1}",
        "type(event.total) == int || string(event.total).contains('.')",
    ],
)
def test_a_filter_that_fits_the_schema_is_accepted_without_a_warning(expression):
    """Reference subscriptions#filter-check."""
    assert check_filter(expression, CLOSED) == []


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("event.totl > 1", "event.totl: the schema of order.created excludes it; did you mean total?"),
        ("has(event.totl)", "event.totl: the schema of order.created excludes it; did you mean total?"),
        ("event['totl'] > 1", "event.totl: the schema of order.created excludes it; did you mean total?"),
        ("!(event.paid && event.x == 1)", "event.x: the schema of order.created excludes it"),
        ("metadata.flow == 'x'", "event.metadata.flow: the schema of order.created excludes it"),
        ("event.total.net > 1", "event.total.net: the schema of order.created excludes it"),
        (
            "event.items[0].skuu == 'a'",
            "event.items[0].skuu: the schema of order.created excludes it; did you mean sku?",
        ),
        ("event.items.exists(i, i.skuu == 'a')", "event.items[].skuu: the schema of order.created excludes it"),
        ("event.items.sku == 'a'", "event.items.sku: the schema of order.created excludes it"),
        (
            "event.total == '12'",
            "event.total: it is number by the schema of order.created, and is compared with string",
        ),
        (
            "'12' == event.count",
            "event.count: it is number by the schema of order.created, and is compared with string",
        ),
        ("event.total != '12'", "is compared with string"),
        ("event.total > 'a'", "is compared with string"),
        ("event.total > null", "is compared with null"),
        ("event.total == null", "event.total: it is number by the schema of order.created, and is compared with null"),
        ("event.paid == 1", "event.paid: it is boolean by the schema of order.created, and is compared with number"),
        ("event.total in ['1', '2']", "and is looked for among string"),
        ("'x' in event.total", "and array or object is needed"),
        (
            "event.currency == event.total",
            "event.currency: it is string by the schema of order.created, and is compared",
        ),
        ("event.created_at > timestamp(0)", "and is compared with timestamp: write timestamp(event.created_at)"),
        (
            "event.created_at.getFullYear() == 2026",
            "and duration or timestamp is needed: write timestamp(event.created_at)",
        ),
        (
            "event.total.startsWith('1')",
            "event.total: it is number by the schema of order.created, and string is needed",
        ),
        ("event.total.matches('1')", "and string is needed"),
        ("size(event.total) == 1", "is needed"),
        ("timestamp(event.paid) > timestamp(0)", "is needed"),
        ("event.total && event.paid", "and boolean is needed"),
        ("event.total ? true : false", "and boolean is needed"),
        ("event.paid + 1 == 2", "is needed"),
        ("-event.currency == 1", "and number is needed"),
        ("event.total.exists(x, x == 1)", "and array or object is needed"),
        ("event.items.all(i, i == 1)", "event.items[]: it is object by the schema of order.created, and is compared"),
        ("event.items == 1", "event.items: it is array by the schema of order.created, and is compared with number"),
        ("int(event.total) == 1.5", "no matching overload"),
        ("event.currency == 'EURO'", 'event.currency: "EURO" is none of its values by the schema of order.created'),
        ("'GPB' != event.currency", 'event.currency: "GPB" is none of its values by the schema of order.created'),
        (
            "event.currency in ['EU', 'USD']",
            '"EU" is none of its values by the schema of order.created; did you mean EUR?',
        ),
        ("event.kind == 2", "event.kind: 2 is none of its values by the schema of order.created"),
        ("event.tags[0] == 'gfit'", 'event.tags[0]: "gfit" is none of its values'),
        ("event.tags.exists(tag, tag == 'gfit')", 'event.tags[]: "gfit" is none of its values'),
        ("'gfit' in event.tags", 'event.tags[]: "gfit" is none of its values'),
        (
            "5 in event.tags",
            "event.tags[]: it is string by the schema of order.created, and number is looked for there",
        ),
        (
            "event.total in event.tags",
            "event.tags[]: it is string by the schema of order.created, and number is looked",
        ),
        ("'y' in event['a name']", "event['a name'].y: the schema of order.created excludes it"),
        ("event.currency", "it gives string by the schema of order.created, and boolean is needed"),
        ("event.items", "it gives array"),
        ("event.paid ? event.currency : 'EUR'", "it gives string"),
        ("event.paid ? event.total : event.currency", "it gives number or string"),
    ],
)
def test_a_filter_that_can_be_true_for_no_event_is_refused_with_path_and_event_type(expression, why):
    """Reference subscriptions#filter-check."""
    with pytest.raises(Invalid, match=r"^The filter can't be used: ") as caught:
        check_filter(expression, CLOSED)
    assert why in str(caught.value)
    assert why in filter_warnings(expression, CLOSED)[0]


@pytest.mark.parametrize(
    ("expression", "warning"),
    [
        ("event.totl > 1", "event.totl: the schema of order.created does not declare it; did you mean total?"),
        ("event.items[0].color == 'red'", "event.items[0].color: the schema of order.created does not declare it"),
        ("has(event.extra.deep)", "event.extra.deep: the schema of order.created does not declare it"),
        ("event.count * 1.5 > 3.0", "event.count: integers of events are an int of CEL"),
        ("event.total * 2 > 3", "event.total: a number without a fraction may be an int of CEL, others are a double"),
    ],
)
def test_what_nothing_declares_or_forbids_is_a_warning(expression, warning):
    """Reference subscriptions#filter-check."""
    assert [each for each in check_filter(expression, OPEN) if each.startswith(warning)]


def test_what_only_some_of_the_event_types_exclude_is_a_warning():
    other = {"order.paid": schema({"properties": {"amount": {"type": "integer"}}})}
    (warning,) = check_filter("has(event.total) && event.total > 5", CLOSED | other)
    assert warning == "event.total: the schema of order.paid excludes it; did you mean amount?"[: len(warning)]
    with pytest.raises(Invalid, match=r"order\.created excludes it.*order\.paid excludes it"):
        check_filter("event.nowhere == 1", CLOSED | other)
    assert check_filter("event.nowhere == 1", CLOSED | {"avro": None})


@pytest.mark.parametrize(
    "expression",
    [
        "has(event.total) || has(event.amount)",
        "event.total == 5 || event.amount == 5",
        "event.currency == 'EUR' || event.currency == 'USD'",
        "event.currency == 5 || event.currency == 'EUR'",
    ],
)
def test_a_filter_whose_parts_are_for_one_event_type_each_is_accepted(expression):
    """Reference subscriptions#filter-check."""
    properties = {"amount": {"type": "integer"}, "currency": {"enum": ["USD", 5]}}
    both = CLOSED | {"order.paid": schema({"properties": properties})}
    assert check_filter(expression, both)


def test_an_event_type_without_a_json_schema_excludes_nothing():
    assert check_filter("event.anything == 1", {"avro": None}) == check_filter("event.anything == 1", {}) == []


def test_members_of_events_of_category_data_stand_below_data():
    data = {"order.created": schema(ORDER, category="data")}
    assert check_filter("event.data.total > 1 && event.data_op == 'C'", data) == []
    with pytest.raises(Invalid, match=r"event\.total: the schema of order.created excludes it"):
        check_filter("event.total > 1", data)


EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "total": st.integers() | st.floats(-1e9, 1e9),
        "currency": st.sampled_from(["EUR", "GBP"]),
        "coupon": st.none() | st.text(),
        "paid": st.booleans(),
        "kind": st.sampled_from([1, 1.0, "a", None]),
        "tags": st.lists(st.sampled_from(["new", "gift"]), max_size=2),
        "items": st.lists(st.fixed_dictionaries({}, optional={"sku": st.text()}), max_size=2),
    },
)
OPERANDS = st.sampled_from(
    [
        *(
            "event.total",
            "event.currency",
            "event.coupon",
            "event.paid",
            "event.items[0].sku",
            "event.items",
            "event.x",
            "event.kind",
            "event.tags",
        ),
        *(
            "1",
            "1.5",
            "'EUR'",
            "'new'",
            "['new', 1]",
            "null",
            "true",
            "timestamp(0)",
            "size(event.items)",
            "string(event.total)",
        ),
    ]
)


@given(OPERANDS, st.sampled_from(["==", "<", ">=", "in"]), OPERANDS, EVENTS)
def test_what_is_refused_is_true_for_no_event(left, operator, right, event):
    expression = f"{left} {operator} {right}"
    try:
        check_filter(expression, CLOSED)
    except Invalid as ex:
        if "the schema of" not in str(ex):
            return  # CEL itself refuses the types.
        outcome = EventFilter(expression).outcome(json.dumps(event).encode())
        assert not outcome.is_wanted or outcome.failure
