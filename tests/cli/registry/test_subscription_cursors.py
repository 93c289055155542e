"""`rioni subscriptions reset`: the new cursors, and the messages before the change."""

import json

import pytest

from rioni.client import CursorSpecification, EventType, Schema, Statistic, Subscription, metadata


EVENTS = 6


@pytest.fixture(scope="module")
def orders(client):
    """An event type with two partitions, with three events in each."""
    statistic = Statistic(messages_per_minute=1, message_size=1, read_parallelism=2, write_parallelism=2)
    created = client.event_types.create(
        EventType(
            name="cli-reset",
            owning_application="shop",
            schema=Schema.json({}),
            partition_strategy="user_defined",
            default_statistic=statistic,
        )
    )
    events = [{"metadata": metadata() | {"partition": str(number % 2)}} for number in range(EVENTS)]
    client.publish(created.name, events)
    return created.name


@pytest.fixture
def subscription(client, orders, name):
    """A subscription that has committed two events of partition 0, and none of partition 1."""
    made = client.subscriptions.create(
        Subscription(owning_application=name, event_types=[orders], read_from="begin", consumer_group=name)
    )
    place = CursorSpecification(event_type=orders, partition="0", offset="001-0001-000000000000000001")
    client.subscriptions.reset(made.id, [place])
    return made.id


@pytest.fixture
def reset(rioni, subscription):
    """Resets, and returns the positions then, the numbers of events that come again or are skipped, and of the rest."""

    def run(*options):
        code, out, err = rioni("subscriptions", "reset", subscription, *options, "--json")
        assert code == 0, err
        rows = [json.loads(line) for line in out.splitlines()]
        return [(_position(each["offset"]), each["again"], each["skipped"], each["unconsumed_events"]) for each in rows]

    return run


def _position(offset):
    return int(offset.removeprefix("001-0001-"))


def positions(client, subscription):
    return [_position(cursor.offset) for cursor in client.subscriptions.cursors(subscription)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--to", "begin"], [(-1, 2, 0, 3), (-1, 0, 0, 3)]),
        (["--to", "end"], [(2, 0, 1, 0), (2, 0, 3, 0)]),
        (["--to", "1h"], [(-1, 2, 0, 3), (-1, 0, 0, 3)]),
        (["--to", "2020-01-31"], [(-1, 2, 0, 3), (-1, 0, 0, 3)]),
        (["--to", "2200-01-31T00:00:00Z"], [(2, 0, 1, 0), (2, 0, 3, 0)]),
        (["--to", "committed"], [(1, 0, 0, 1), (-1, 0, 0, 3)]),
        (["--to", "committed", "--shift", "-1"], [(0, 1, 0, 2), (-1, 0, 0, 3)]),
        (["--to", "committed", "--shift", "2"], [(2, 0, 1, 0), (1, 0, 2, 1)]),
        (["--to", "begin", "--partition", "0"], [(-1, 2, 0, 3)]),
        (["--cursor", "1:001-0001-000000000000000000"], [(0, 0, 1, 2)]),
        (["--cursor", "cli-reset:0:BEGIN", "--cursor", "1:END", "--shift", "-1"], [(-1, 2, 0, 3), (1, 0, 2, 1)]),
    ],
)
def test_cursors_are_moved_where_the_preview_says(client, subscription, reset, options, expected):
    before = positions(client, subscription)
    assert reset(*options, "--dry-run") == expected
    assert positions(client, subscription) == before
    assert reset(*options, "--yes") == expected
    after = [row[0] for row in expected]
    assert positions(client, subscription) == (after if len(after) == 2 else _replaced(before, options, after[0]))


def _replaced(before, options, position):
    partition = int(options[-1].partition(":")[0])
    return [position if number == partition else each for number, each in enumerate(before)]


def test_people_are_asked_after_the_preview(rioni, client, subscription):
    before = positions(client, subscription)
    code, out, err = rioni("subscriptions", "reset", subscription, "--to", "begin", stdin="y\n")
    assert code == 2
    assert out.splitlines()[0].split()[-4:] == ["again", "skipped", "unconsumed", "then"]
    assert "2 events come again, 0 are skipped." in err
    assert positions(client, subscription) == before


def test_a_subscription_that_was_never_streamed_can_be_moved(rioni, client, orders, name):
    made = client.subscriptions.create(Subscription(owning_application=name, event_types=[orders]))
    code, _, err = rioni("subscriptions", "reset", made.id, "--to", "committed", "--yes")
    assert code == 2
    assert "no committed cursors before it is first streamed or reset" in err
    assert rioni("subscriptions", "reset", made.id, "--to", "begin", "--yes")[0] == 0
    assert positions(client, made.id) == [-1, -1]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ([], "Name where to move the cursors"),
        (["--to", "begin", "--cursor", "0:BEGIN"], "Name where to move the cursors"),
        (["--to", "soon"], "soon is not a time"),
        (["--to", "begin", "--partition", "7"], "The subscription has no such partition; it has 0 of"),
        (["--to", "begin", "--event-type", "other"], "The subscription does not read other; it reads cli-reset."),
        (["--cursor", "other:0:BEGIN"], "The subscription does not read other; it reads cli-reset."),
        (["--cursor", "0:001-0001-000000000000000900"], "422"),
        (["--cursor", "9:BEGIN"], "422"),
    ],
)
def test_what_cannot_be_moved_is_an_error(rioni, client, subscription, options, error):
    before = positions(client, subscription)
    code, _, err = rioni("subscriptions", "reset", subscription, *options, "--yes")
    assert code == 2
    assert error in " ".join(err.split())
    assert positions(client, subscription) == before
