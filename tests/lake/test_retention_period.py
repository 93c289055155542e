from datetime import date

import pytest

from rioni.lake.retention_period import kept_since


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
