import pytest

from rioni.cli.doctor.registry import EventTypeFacts
from rioni.cli.doctor.subscriptions import SubscriptionFacts, SubscriptionLag, Subscriptions
from tests.support.doctor_cases import Cases, ago, check_healthy, check_sick, error, healthy, sick, warning


HOUR_S, DAY_S = 3_600, 86_400
TYPES = [EventTypeFacts("order", "shop", ago(days=90), authorization=True, open_to=[], retention_ms=2 * DAY_S * 1_000)]


def lag(unconsumed=0, *, streamed=True, **changes):
    return SubscriptionLag("order", "0", streamed, unconsumed, **changes)


def of(*lags, created_at=None, dead_letter_at=None, never_streamed=False):
    created_at = created_at or ago(days=90)
    item = SubscriptionFacts("4711", "shop", "default", created_at, list(lags), dead_letter_at, never_streamed)
    return Subscriptions([item], 3.0)


CASES = {
    "cursors": Cases([[of(lag())]], [error("partition 0: beyond", of(lag(error="beyond the end")))]),
    "expiring-lag": Cases(
        [[of(lag(5, lag_s=HOUR_S)), TYPES], [of(lag(5, lag_s=90 * DAY_S)), []]],
        [warning("36 hours behind on order, whose events are kept for 2 days", of(lag(5, lag_s=36 * HOUR_S)), TYPES)],
    ),
    "growing-lag": Cases(
        [
            [of(lag(5, growth=3, lag_s=60))],
            [of(lag(5, growth=-3, lag_s=HOUR_S))],
            [of(lag(5, growth=3, lag_s=HOUR_S, streamed=False))],
        ],
        [warning("60 minutes behind, and had 3 more events", of(lag(5, growth=3, lag_s=HOUR_S)))],
    ),
    "without-streams": Cases(
        [
            [of(lag(5, lag_s=DAY_S))],
            [of(lag(5, lag_s=60, streamed=False))],
            [of(lag(0, streamed=False))],
            [of(lag(5, lag_s=3 * DAY_S, streamed=False), never_streamed=True)],
        ],
        [warning("5 events wait for up to 3 days", of(lag(5, lag_s=3 * DAY_S, streamed=False)))],
    ),
    "never-streamed": Cases(
        [
            [of(lag(5, lag_s=DAY_S, streamed=False))],
            [of(lag(0, streamed=False), never_streamed=True)],
            [of(lag(None, streamed=False), never_streamed=True)],
            [of(lag(5, lag_s=DAY_S, streamed=False), never_streamed=True, created_at=ago(minutes=1))],
        ],
        [
            warning(
                "4711 (shop, default) was never streamed: 1,883 events of order wait for up to 2 hours",
                of(lag(1_883, lag_s=2 * HOUR_S, streamed=False), never_streamed=True, created_at=ago(hours=2)),
            ),
            warning(
                "12 events of order wait for up to 0 seconds",
                of(lag(5, streamed=False), lag(7, streamed=False), never_streamed=True),
            ),
        ],
    ),
    "unused-subscriptions": Cases(
        [
            [of(lag(None, streamed=False), created_at=ago(days=2), never_streamed=True)],
            [of(lag(0, streamed=False))],
            [of(lag(None))],
            [of()],
        ],
        [warning("never streamed: 4711 (shop, default)", of(lag(None, streamed=False), never_streamed=True))],
    ),
    "dead-letters": Cases([[of(lag())]], [warning("has dead letters", of(lag(), dead_letter_at=ago(days=1)))]),
}


@pytest.mark.parametrize(("name", "facts"), healthy(CASES))
def test_nothing_is_found_where_consumers_are_healthy(name, facts):
    check_healthy(name, facts)


@pytest.mark.parametrize(("name", "case"), sick(CASES))
def test_what_is_wrong_with_subscriptions_is_found(name, case):
    check_sick(name, case)
