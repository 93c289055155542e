"""Validates the annotations that decide whether, and for how long, events are kept in the data lake.

Source: reference event-types#annotations-and-labels.
"""

import re
from collections.abc import Iterator, Mapping

from rioni.domain.errors import InvalidFields


MATERIALIZE = "datalake.zalando.org/materialize-events"
PERIOD = "datalake.zalando.org/retention-period"
REASON = "datalake.zalando.org/retention-period-reason"

PERIODS = "must be 'unlimited' or a number of days (7-3650), weeks (1-521), months (1-120) or years (1-10)"
_PERIOD = re.compile(r"([1-9][0-9]{0,3}) ?(d|days?|w|weeks?|m|months?|y|years?)")
_BOUNDS = {"d": (7, 3_650), "w": (1, 521), "m": (1, 120), "y": (1, 10)}


def check_data_lake(annotations: Mapping[str, str], *, mandatory: bool) -> None:
    """Check the annotations for the data lake.

    Args:
        annotations: all annotations of an event type.
        mandatory: whether the annotations are required.

    Raises:
        InvalidFields: names the annotations that are missing or wrong.
    """
    violations = list(_violations(annotations, mandatory=mandatory))
    if violations:
        raise InvalidFields([(f"annotations[{key}]", message) for key, message in violations])


def _violations(annotations: Mapping[str, str], *, mandatory: bool) -> Iterator[tuple[str, str]]:
    materialize, period = annotations.get(MATERIALIZE), annotations.get(PERIOD)
    if materialize is None and mandatory:
        yield MATERIALIZE, "must not be null"
    if materialize not in (None, "on", "off"):
        yield MATERIALIZE, "must be 'on' or 'off'"
    if materialize == "on" and period is None:
        yield PERIOD, f"must not be null when {MATERIALIZE} is 'on'"
    if period is None:
        return
    if not annotations.get(REASON):
        yield REASON, f"must not be empty when {PERIOD} is given"
    if not is_period(period):
        yield PERIOD, PERIODS


def is_period(text: str) -> bool:
    """Whether the annotation may have this value."""
    if text == "unlimited":
        return True
    if (match := _PERIOD.fullmatch(text)) is None:
        return False
    least, most = _BOUNDS[match[2][0]]
    return least <= int(match[1]) <= most
