import pytest

from rioni.domain.timelines.timeline import (
    TimelineCleanedUp,
    TimelineDigested,
    TimelineOpened,
    Timelines,
    TimelinesDeleted,
    TimelinesRepartitioned,
    TimelineSwitchAborted,
    TimelineSwitched,
    TimelineSwitchStarted,
    describe_change,
    evolve,
)
from tests.support.builders import timeline


NAME = "order.created"
FIRST, NEXT = timeline(1, "a", partitions=2), timeline(2, "b", partitions=2, storage_id="kafka")
STARTED = TimelineSwitchStarted(event_type=NAME, timeline=NEXT, worker="w")
DESCRIPTIONS = [
    (TimelineOpened(event_type=NAME, timeline=FIRST), "begins in timeline 1 (storage default), partitions: 2"),
    (STARTED, "is to go on from timeline 1 (storage default) to timeline 2 (storage kafka)"),
    (
        TimelineSwitchAborted(event_type=NAME, timeline_id="2", reason="x"),
        "stays in timeline 1 (storage default); timeline 2 (storage kafka) is not used",
    ),
    (STARTED, "is to go on from timeline 1 (storage default) to timeline 2 (storage kafka)"),
    (
        TimelineSwitched(event_type=NAME, timeline=NEXT, latest_position=(41, -1)),
        "goes on in timeline 2 (storage kafka); timeline 1 (storage default) ends at 41, -1",
    ),
    (
        TimelineDigested(event_type=NAME, order=1, storage="default", topic="t", blocks=(), next=(42, 0)),
        "has digests of the records of timeline 1 (storage default)",
    ),
    (TimelinesRepartitioned(event_type=NAME, partitions=3), "has 3 partitions instead of 2"),
    (
        TimelineCleanedUp(event_type=NAME, order=1, cleaned_up_at="t"),
        "has lost the events of timeline 1 (storage default) to retention",
    ),
    (TimelinesDeleted(event_type=NAME), "is gone, and with it timeline 2 (storage kafka)"),
]


def test_the_timelines_of_an_event_type_are_described_from_its_creation_through_each_switch():
    state: Timelines | None = None
    for event, expected in DESCRIPTIONS:
        before, state = state, evolve(state, event)
        assert describe_change(event.TOPIC, before, state) == expected


@pytest.mark.parametrize("topic", ["event-type.created", "timeline.of-the-future"])
def test_unknown_events_have_no_description(topic):
    assert describe_change(topic, None, None) == ""
