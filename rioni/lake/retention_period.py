"""How long the annotation for the data lake asks to keep events there."""

import re
from datetime import date, timedelta

from rioni.domain.errors import Invalid
from rioni.domain.event_types.annotations import PERIOD, PERIODS, is_period


_PERIOD = re.compile(r"([0-9]+) ?([dwmy])")
_DAYS = {"d": 1, "w": 7, "m": 31, "y": 366}


def kept_since(period: str | None, today: date) -> date | None:
    """The first day whose events are still to be kept; None for all days.

    Args:
        period: the annotation; a month counts as 31 days, a year as 366.
        today: in UTC.

    Raises:
        Invalid: it is none that this broker accepts; others may do so.
    """
    if period is not None and not is_period(period):
        raise Invalid(f"The annotation {PERIOD} is {period!r:.100}, but {PERIODS}.")
    found = _PERIOD.match(period or "")
    if found is None:
        return None
    return today - timedelta(days=int(found[1]) * _DAYS[found[2]])
