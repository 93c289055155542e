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


@pytest.mark.parametrize("stored", [b'{"class_version":3,"id":1}', b"[]", b'"text"'])
def test_data_that_does_not_fit_is_refused(stored):
    with pytest.raises(msgspec.ValidationError):
        ThingNamed.decode(stored)


@pytest.mark.parametrize("version", [b"4", b"0", b"-1", b'"3"', b"[]", b"null", b"2.5"])
def test_a_class_version_from_the_future_or_from_nowhere_is_refused(version):
    """What a newer class wrote may mean more than this one can hold: guessing would lose it silently."""
    with pytest.raises(msgspec.ValidationError, match="the newest known here is 3"):
        ThingNamed.decode(b'{"class_version":%s,"id":"1","title":"a","length":1,"more":true}' % version)


def test_kind_key_and_stream_follow_from_topic_and_field():
    event = ThingNamed(id="x", title="a", length=1)
    assert (event.kind, event.key) == ("thing", "x")
    assert event.stream == stream_id("thing", "x") != stream_id("thing", "y")
