import pytest

from rioni.domain.errors import InvalidFields
from rioni.domain.event_types.event_type import EventOwnerSelector
from rioni.domain.event_types.rules import check_fields as check_event_type
from rioni.domain.limits import (
    EVENT_TYPES_MAX,
    INITIAL_CURSORS_MAX,
    LABELS_MAX,
    PATH_CHARACTERS_MAX,
    PATHS_MAX,
)
from rioni.domain.subscriptions.cursor_spec import CursorSpec
from rioni.domain.subscriptions.subscription import check_fields as check_subscription
from tests.support.builders import event_type_spec, subscription_spec


def labels(count):
    return {f"label-{number}": "x" for number in range(count)}


def cursors(count):
    return tuple(CursorSpec(event_type="a", partition=str(number), offset="BEGIN") for number in range(count))


def selector(count):
    return EventOwnerSelector(type="path", name="owner", value="x" * count)


EVENT_TYPE, SUBSCRIPTION = (check_event_type, event_type_spec), (check_subscription, subscription_spec)


@pytest.mark.parametrize(
    ("kind", "field", "most", "made"),
    [
        *((EVENT_TYPE, field, LABELS_MAX, labels) for field in ("labels", "annotations")),
        *((SUBSCRIPTION, field, LABELS_MAX, labels) for field in ("labels", "annotations")),
        *(
            (EVENT_TYPE, field, PATHS_MAX, lambda count: tuple(map(str, range(count))))
            for field in ("ordering_key_fields", "ordering_instance_ids", "partition_key_fields")
        ),
        (EVENT_TYPE, "ordering_key_fields", PATH_CHARACTERS_MAX, lambda count: ("x" * count,)),
        (EVENT_TYPE, "event_owner_selector", PATH_CHARACTERS_MAX, selector),
        (SUBSCRIPTION, "event_types", EVENT_TYPES_MAX, lambda count: tuple(map(str, range(count)))),
        (SUBSCRIPTION, "initial_cursors", INITIAL_CURSORS_MAX, cursors),
    ],
)
def test_the_size_of_definitions_is_limited_and_the_limit_is_named(kind, field, most, made):
    """Reference event-types#definition-limits."""
    check_fields, spec = kind
    more = {"read_from": "cursors"} if field == "initial_cursors" else {}
    check_fields(spec(**more, **{field: made(most)}))
    with pytest.raises(InvalidFields, match=rf"{field}.* more than {most} "):
        check_fields(spec(**more, **{field: made(most + 1)}))
