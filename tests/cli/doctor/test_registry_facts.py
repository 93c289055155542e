from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rioni.cli.doctor import registry
from rioni.cli.doctor.diagnosis import Deadline
from rioni.client import NotFound
from tests.support.scripted_server import Answer
from tests.support.sick_broker import facets


def event_types(*names):
    return [registry.EventTypeFacts(name, "a", None, authorization=True, open_to=[], retention_ms=1) for name in names]


def timelines(*cleaned_up):
    common = {"event_type": "a", "storage_id": "s", "topic": "t", "created_at": "2026-01-01T00:00:00Z"}
    return Answer(200, [{"id": "x", "order": n, "cleaned_up_at": at, **common} for n, at in enumerate(cleaned_up, 1)])


def partitions(*offsets):
    return Answer(
        200,
        [
            {"partition": str(n), "oldest_available_offset": offset, "newest_available_offset": offset}
            for n, offset in enumerate(offsets)
        ],
    )


def test_other_servers_do_not_tell_what_is_unused(site, scripted):
    scripted.script_paths({"/event-types": [Answer(200, [])]})
    with pytest.raises(NotFound):
        registry.unused.gather(site)
    scripted.script_paths({"/event-type-facets": [facets(unused=0)]})
    assert registry.unused.gather(site) == []


def test_an_event_type_that_was_deleted_meanwhile_is_left_out(site, scripted):
    scripted.script_paths({})
    assert registry.overdue_timelines.gather(site, event_types("deleted")) == registry.Overdues([])


def test_of_many_event_types_some_are_chosen(site, scripted, monkeypatch):
    monkeypatch.setattr(registry, "EVENT_TYPES_MAX", 2)
    scripted.script_paths({f"/event-types/{name}/timelines": [timelines(None)] for name in "abcd"})
    found = registry.overdue_timelines.gather(site, event_types(*"abcd"))
    assert len(scripted.requests) == 2
    assert found.partial == "looked at 2 of 4 event types, others each time"


def test_nothing_more_is_asked_when_the_time_is_over(site, scripted):
    scripted.script_paths({"/event-types/a/timelines": [timelines(None)]})
    late = replace(site, deadline=Deadline(0))
    assert (
        registry.overdue_timelines.gather(late, event_types("a")).partial
        == "looked at 0 of 1 event types, others each time"
    )
    assert scripted.requests == []


def test_a_timeline_that_is_due_and_still_has_events_is_overdue(site, scripted):
    due, later = "2026-01-02T00:00:00Z", "2999-01-01T00:00:00Z"
    scripted.script_paths(
        {
            "/event-types/a/timelines": [timelines(due, due, later, None)],
            "/event-types/a/partitions": [partitions("001-0002-000000000000000001", "001-0003--1")],
            "/event-types/b/timelines": [timelines(later, None)],
        }
    )
    found = registry.overdue_timelines.gather(site, event_types("a", "b"))
    assert found.timelines == [registry.Overdue("a", 2, datetime(2026, 1, 2, tzinfo=UTC))]
    assert found.partial == ""
    assert "/event-types/b/partitions" not in [request.path for request in scripted.requests]
