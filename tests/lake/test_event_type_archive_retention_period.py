from datetime import date
from unittest.mock import MagicMock

import pytest

from rioni.client import EventType, Schema
from rioni.domain.errors import Invalid
from rioni.domain.event_types.event_type import PERIOD
from rioni.lake.event_type_archive import CommitLimits, EventTypeArchive, kept_since


@pytest.mark.parametrize(
    ("period", "since"),
    [
        (None, None),
        ("unlimited", None),
        ("10d", date(2026, 11, 10)),
        ("10 days", date(2026, 11, 10)),
        ("1 week", date(2026, 11, 13)),
        ("2m", date(2026, 9, 19)),
        ("1 year", date(2025, 11, 19)),
    ],
)
def test_a_period_of_the_annotation_ends_on_a_day(period, since):
    assert kept_since(period, date(2026, 11, 20)) == since


@pytest.mark.parametrize("period", ["", "0d", "10", "10 decades", "7.5d", "9999y", "999999999999d", "9" * 5_000 + "d"])
def test_what_is_no_period_removes_nothing_and_is_named(period):
    """Brokers of this API need not check annotations."""
    with pytest.raises(Invalid, match=r"The annotation datalake\.zalando\.org/retention-period is '.*, but must be"):
        kept_since(period, date(2026, 11, 20))


def test_an_archive_names_the_event_type_of_such_a_period_and_goes_on(caplog):
    archive = EventTypeArchive(MagicMock(), None, "orders", CommitLimits(), None)
    described = EventType(
        name="orders", owning_application="shop", schema=Schema(schema="{}"), annotations={PERIOD: "10 decades"}
    )
    archive._expire(None, described, date(2026, 11, 20))
    (said,) = caplog.messages
    assert said.startswith("orders: The annotation ")
    assert said.endswith(" Nothing is removed from its table.")
