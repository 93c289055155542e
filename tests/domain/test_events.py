from typing import ClassVar

import msgspec
import pytest

from rioni.domain.events import DomainEvent, stream_id


class ThingNamed(DomainEvent, frozen=True, kw_only=True):
    """Version 3: `title` was called `name` in version 1, `length` came with version 3."""

    TOPIC = "thing.named"
    KEY = "id"
    UPCASTERS: ClassVar = {
        1: lambda fields: fields | {"title": fields["name"]},
        2: lambda fields: fields | {"length": len(fields["title"])},
    }

    class_version: int = 3
    id: str
    title: str
    length: int


def test_the_stored_form_is_plain_json_with_the_class_version_first():
    event = ThingNamed(id="1", title="a", length=1)
    assert event.encode() == b'{"class_version":3,"id":"1","title":"a","length":1}'
    assert ThingNamed.decode(event.encode()) == event


@pytest.mark.parametrize(
    "stored",
    [
        b'{"class_version":1,"id":"1","name":"abc"}',
        b'{"id":"1","name":"abc"}',
        b'{"class_version":2,"id":"1","title":"abc"}',
    ],
)
def test_events_of_older_classes_are_upcast_step_by_step(stored):
    assert ThingNamed.decode(stored) == ThingNamed(id="1", title="abc", length=3)


def test_data_that_does_not_fit_is_refused():
    with pytest.raises(msgspec.ValidationError):
        ThingNamed.decode(b'{"class_version":3,"id":1}')


def test_kind_key_and_stream_follow_from_topic_and_field():
    event = ThingNamed(id="x", title="a", length=1)
    assert (event.kind, event.key) == ("thing", "x")
    assert event.stream == stream_id("thing", "x") != stream_id("thing", "y")
