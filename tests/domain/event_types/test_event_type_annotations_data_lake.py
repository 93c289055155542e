import pytest

from rioni.domain.errors import InvalidFields
from rioni.domain.event_types.event_type import MATERIALIZE, PERIOD, REASON, check_data_lake


def wrong_annotations(annotations, *, mandatory=False):
    """The fields with errors."""
    try:
        check_data_lake(annotations, mandatory=mandatory)
    except InvalidFields as ex:
        return [path for path, _ in ex.violations]
    return []


@pytest.mark.parametrize(
    "period", ["unlimited", "7 days", "3650 days", "25d", "2w", "521 weeks", "1m", "120 months", "1y", "10 years"]
)
def test_a_period_within_its_bounds_is_accepted(period):
    """Reference event-types#data-lake-annotations."""
    assert wrong_annotations({MATERIALIZE: "on", PERIOD: period, REASON: "law"}, mandatory=True) == []


@pytest.mark.parametrize(
    ("annotations", "wrong"),
    [
        ({MATERIALIZE: "ON"}, [MATERIALIZE]),
        ({MATERIALIZE: "on"}, [PERIOD]),
        ({MATERIALIZE: "on", PERIOD: "7 days"}, [REASON]),
        ({MATERIALIZE: "off", PERIOD: "7 days", REASON: ""}, [REASON]),
        *(
            ({PERIOD: period, REASON: "law"}, [PERIOD])
            for period in ("", "6 days", "3651d", "522w", "0m", "121 months", "11y", "d", "1 century", "forever")
        ),
    ],
)
def test_a_wrong_annotation_is_named(annotations, wrong):
    """Reference event-types#data-lake-annotations."""
    assert wrong_annotations(annotations) == [f"annotations[{key}]" for key in wrong]


def test_a_decision_is_required_only_if_it_is_mandatory():
    """Reference event-types#data-lake-annotations."""
    assert wrong_annotations({}) == []
    assert wrong_annotations({}, mandatory=True) == [f"annotations[{MATERIALIZE}]"]
