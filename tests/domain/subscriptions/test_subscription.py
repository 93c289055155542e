import re

import pytest

from rioni.domain.errors import Invalid
from rioni.domain.subscriptions.subscription import changed
from tests.support.builders import NOW, subscription, subscription_spec


LATER = "2030-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"consumer_group": "x"}, "consumer group"),
        ({"event_types": ("x",)}, "event types"),
        ({"owning_application": "x"}, "owning application"),
        ({"read_from": "begin"}, "read from"),
    ],
)
def test_what_identifies_a_subscription_can_not_be_changed(changes, what):
    with pytest.raises(Invalid, match=re.escape(f"Not allowed to change subscription {what}") + "$"):
        changed(subscription(), subscription_spec(**changes), now=LATER)


def test_a_change_keeps_the_identity_and_moves_the_time():
    before = subscription()
    assert changed(before, subscription_spec(), now=LATER) is before
    after = changed(before, subscription_spec(labels={"a": "b"}), now=LATER)
    assert (after.id, after.created_at, after.updated_at) == (before.id, NOW, LATER)
    assert after.labels == {"a": "b"}
