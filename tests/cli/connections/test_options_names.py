"""Names that users give: subscriptions by application and group, and proposals for unknown names."""

import pytest

from rioni.client import EventType, Schema, Subscription


@pytest.fixture
def subscribed(client, name):
    """Subscriptions of an application with the test's name, by consumer group and event types."""

    def create(group="default", *event_types):
        for each in event_types or (name,):
            if not any(found.name == each for found in client.event_types.list()):
                client.event_types.create(EventType(name=each, owning_application="shop", schema=Schema.json({})))
        wanted = Subscription(owning_application=name, consumer_group=group, event_types=list(event_types or (name,)))
        return client.subscriptions.create(wanted).id

    return create


@pytest.mark.parametrize(
    "command",
    [
        "subscriptions show {}",
        "subscriptions cursors {}",
        "subscriptions reset {} --to begin --yes",
        "subscriptions lag {}",
        "subscriptions ended-streams {}",
        "subscriptions consume {} --idle 5",
        "dead-letters list {}",
        "settings rights --subscription {}",
        "monitoring history --subscription {}",
        "subscriptions delete {} --yes",
    ],
)
def test_a_subscription_is_known_by_its_application_and_group_wherever_its_id_is(rioni, subscribed, name, command):
    id_ = subscribed()
    by_name = rioni(*command.format(f"{name}/default").split())
    assert by_name[0] == 0, by_name
    if "delete" not in command and "consume" not in command and "reset" not in command:
        assert rioni(*command.format(id_).split())[:2] == by_name[:2]


def test_a_name_of_several_subscriptions_is_refused_with_the_candidates(rioni, subscribed, name):
    ids = [subscribed("default"), subscribed("default", name, f"{name}-other")]
    code, out, err = rioni("subscriptions", "delete", f"{name}/default", "--yes")
    assert (code, out) == (2, "")
    assert err.startswith(f"Error: There are 2 subscriptions {name}/default; give the id of one: ")
    assert all(each in err for each in ids)
    assert f"({name}, {name}-other)" in err


def test_an_unknown_name_of_a_subscription_proposes_the_nearest(rioni, subscribed, name):
    subscribed("billing")
    code, _, err = rioni("subscriptions", "show", f"{name}/billinx")
    assert (code, err) == (2, f"Error: There is no subscription {name}/billinx; did you mean {name}/billing?\n")
