"""The lags of subscriptions in `/metrics`: reference operations#lag-metrics."""

from uuid import uuid4

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from rioni.domain.errors import SubscriptionNotFound
from rioni.domain.subscriptions.lag import Lag
from rioni.http.metrics.shared_tables import CHOSEN_EVERY_S, OTHERS, LagTable
from tests.support.builders import subscription
from tests.support.clock import ManualClock


NOW_MS = 1_700_000_000_000


@pytest.fixture
def ids():
    return [str(uuid4()) for _ in range(4)]


@pytest.fixture
def show(ids):
    """The samples of a table, with two subscriptions of four deleted if asked for."""

    def show(table, deleted=()):
        def find(subscription_id):
            if subscription_id in deleted:
                raise SubscriptionNotFound(subscription_id)
            return msgspec.structs.replace(subscription(), id=subscription_id)

        table.label_by(find, ManualClock(NOW_MS))
        return {
            (sample.name.removeprefix("rioni_subscription_"), sample.labels.get("subscription")): sample.value
            for family in table.collect()
            for sample in family.samples
        }

    return show


def write(table, lags, as_of_ms=NOW_MS, now_s=0.0):
    table.write(lags, sum(lag.events for lag in lags.values()), as_of_ms, now_s)


def test_every_process_shows_what_one_has_written(tmp_path, ids, show):
    writer, reader = LagTable(tmp_path, 10), LagTable(tmp_path, 10)
    assert show(reader) == {}
    write(writer, {ids[0]: Lag(5, NOW_MS - 2_500), ids[1]: Lag(0), ids[2]: Lag(3, None)}, NOW_MS - 500)
    assert show(reader) == {
        ("lag_events", ids[0]): 5,
        ("lag_seconds", ids[0]): 2,
        ("lag_events", ids[1]): 0,
        ("lag_seconds", ids[1]): 0,
        ("lag_events", ids[2]): 3,
        ("lags_age_seconds", None): 0.5,
    }
    write(writer, {ids[0]: Lag(1, NOW_MS)})
    assert show(reader) == {
        ("lag_events", ids[0]): 1,
        ("lag_seconds", ids[0]): 0,
        ("lags_age_seconds", None): 0,
    }


def test_the_largest_lags_are_shown_and_the_others_together(ids, show):
    table = LagTable(None, 2)
    lags = {
        ids[0]: Lag(1, NOW_MS - 9_000),
        ids[1]: Lag(7, NOW_MS),
        ids[2]: Lag(2, NOW_MS - 4_000),
        ids[3]: Lag(8, NOW_MS),
    }
    write(table, lags)
    shown = show(table)
    assert {each for name, each in shown if name == "lag_events"} == {ids[1], ids[3], OTHERS}
    assert (shown["lag_events", OTHERS], shown["lag_seconds", OTHERS]) == (3, 9)
    write(table, lags | {ids[0]: Lag(100, NOW_MS - 9_000)}, now_s=CHOSEN_EVERY_S / 2)
    assert show(table)["lag_events", OTHERS] == 102
    write(table, lags | {ids[0]: Lag(100, NOW_MS - 9_000)}, now_s=CHOSEN_EVERY_S)
    shown = show(table)
    assert (shown["lag_events", ids[0]], shown["lag_events", OTHERS]) == (100, 9)


def test_deleted_subscriptions_are_not_shown(ids, show):
    table = LagTable(None, 10)
    write(table, {ids[0]: Lag(5, NOW_MS), ids[1]: Lag(6, NOW_MS)})
    assert {each for name, each in show(table, deleted={ids[0]}) if name == "lag_events"} == {ids[1]}


def test_labels_name_owner_and_consumer_group(ids):
    table = LagTable(None, 10)
    table.label_by(lambda _id: subscription(owning_application='a "b"', consumer_group="g"), ManualClock(NOW_MS))
    write(table, {ids[0]: Lag(5, NOW_MS)})
    registry = CollectorRegistry()
    registry.register(table)
    labels = rf'consumer_group="g",owning_application="a \"b\"",subscription="{ids[0]}"'
    assert f"rioni_subscription_lag_events{{{labels}}} 5.0" in generate_latest(registry).decode()


def test_a_reader_beside_the_writer_never_sees_a_mixture(tmp_path, ids):
    writer, reader = LagTable(tmp_path, 10), LagTable(tmp_path, 10)
    for number in range(1, 200):
        write(writer, dict.fromkeys(ids, Lag(number, number)), as_of_ms=number)
        shown = reader.read()
        assert shown.as_of_ms == number
        assert set(shown.lags.values()) == {Lag(number, number)}
