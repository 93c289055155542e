import msgspec
import pytest

from rioni.domain.aggregates import TOPICS
from rioni.domain.events import DomainEvent, UnknownMembers, stream_id
from rioni.domain.subscriptions.subscription import SubscriptionCreated
from tests.support.builders import subscription


class ThingNamed(DomainEvent, frozen=True, kw_only=True):
    """Version 3: `title` was called `name` in version 1, `length` came with version 3."""

    TOPIC = "thing.named"
    KEY = "id"

    class_version: int = 3
    id: str
    title: str
    length: int

    @staticmethod
    def upcast_v1_v2(fields):
        fields["title"] = fields.pop("name")

    @staticmethod
    def upcast_v2_v3(fields):
        fields["length"] = len(fields["title"])


def test_the_stored_form_is_plain_json_with_the_class_version_first():
    event = ThingNamed(id="1", title="a", length=1)
    assert event.encode() == b'{"class_version":3,"id":"1","title":"a","length":1}'
    assert ThingNamed.decode(event.encode()) == event


@pytest.mark.parametrize("two", ["2.0", "2e0", "0.2e1", "20e-1"])
def test_whole_numbers_that_release_0_1_0_wrote_as_a_client_did_are_read(two):
    event = ThingNamed.decode(ThingNamed(id="1", title="a", length=7).encode().replace(b"7", two.encode()))
    assert event == ThingNamed(id="1", title="a", length=2)
    assert isinstance(event.length, int)
    with pytest.raises(msgspec.ValidationError):
        ThingNamed.decode(ThingNamed(id="1", title="a", length=7).encode().replace(b"7", b"2.5"))


@pytest.mark.parametrize("members", [{"length": 2.0}, {"length": None}, {"title": 7}, {"title": {"a": 1}}])
def test_what_could_not_be_read_again_is_never_written(members):
    """One such entry would stop all who read the log, for ever."""
    event = ThingNamed(**({"id": "1", "title": "a", "length": 1} | members))
    with pytest.raises(msgspec.ValidationError):
        event.encode()


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
def test_data_of_a_wrong_type_is_rejected(stored):
    with pytest.raises(msgspec.ValidationError):
        ThingNamed.decode(stored)


@pytest.mark.parametrize("version", [b"4", b"0", b"-1", b'"3"', b"[]", b"null", b"2.5"])
def test_a_newer_or_missing_class_version_is_rejected(version):
    """A newer class may have written more than this one can represent: ignoring it would lose data silently."""
    with pytest.raises(msgspec.ValidationError, match="the newest known here is 3"):
        ThingNamed.decode(b'{"class_version":%s,"id":"1","title":"a","length":1,"more":true}' % version)


class Part(msgspec.Struct, frozen=True):
    size: int


class ThingBuilt(DomainEvent, frozen=True, kw_only=True):
    TOPIC = "thing.built"
    KEY = "id"

    class_version: int = 2
    id: str
    parts: tuple[Part, ...] = ()
    named: dict[str, Part] = msgspec.field(default_factory=dict)
    best: Part | None = None
    note: str | None = None

    @staticmethod
    def upcast_v1_v2(fields):
        fields["note"] = None

    @staticmethod
    def downcast_v2_v1(fields):
        return fields.pop("note") is None


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("members", "unknown"),
    [
        ('"more":true', "more"),
        ('"more":null', "more"),
        ('"parts":[{"size":1},{"size":2,"colour":"red"}]', "parts.1.colour"),
        ('"named":{"a":{"size":1,"colour":"red"}}', "named.a.colour"),
        ('"best":{"size":1,"colour":"red"},"more":1', "best.colour, more"),
    ],
)
def test_unknown_members_are_rejected_at_every_level(version, members, unknown):
    with pytest.raises(UnknownMembers, match=rf"thing\.built at class version {version} has members .*: {unknown}\. A"):
        ThingBuilt.decode(b'{"class_version":%d,"id":"1",%b}' % (version, members.encode()))


def test_members_may_be_in_any_order_and_defaults_may_be_absent():
    stored = b'{"best":{"size":3},"id":"1","class_version":2,"named":{"a":{"size":1}},"parts":[{"size":2}]}'
    assert ThingBuilt.decode(stored) == ThingBuilt(id="1", best=Part(3), named={"a": Part(1)}, parts=(Part(2),))


def test_no_field_of_a_subscription_is_dropped_silently():
    data = SubscriptionCreated(id="1", subscription=subscription()).encode()
    for place, path in ((b'{"class_version":1,', "colour"), (b'"subscription":{', "subscription.colour")):
        with pytest.raises(UnknownMembers, match=path):
            TOPICS["subscription.created"].decode(data.replace(place, place + b'"colour":"red",'))


def test_an_event_is_encoded_as_an_older_version_if_that_can_represent_it():
    fields = ThingBuilt(id="1").downcast(1)
    assert msgspec.json.encode(fields) == b'{"class_version":1,"id":"1","parts":[],"named":{},"best":null}'
    assert ThingBuilt(id="1", note="x").downcast(1) is None
    assert msgspec.json.encode(ThingBuilt(id="1", note="x").downcast(2)) == ThingBuilt(id="1", note="x").encode()


def test_kind_key_and_stream_follow_from_topic_and_field():
    event = ThingNamed(id="x", title="a", length=1)
    assert (event.kind, event.key) == ("thing", "x")
    assert event.stream == stream_id("thing", "x") != stream_id("thing", "y")
