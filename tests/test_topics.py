"""Pins everything stored for ever: topics, the ids of streams, and the stored form of every event.

A failure here means that logs in the field could not be read any more. Never rename a topic; to change the fields of an
event raise its `class_version`, add an upcaster and a format, and add the new form here next to the old one.
"""

from pathlib import Path
from uuid import UUID

import pytest

from rioni.domain.aggregates import AGGREGATES, FORMATS, TOPICS, newest, version_in
from rioni.domain.audit_events import AUDITED
from rioni.domain.events import current_version, stream_id


EVENT_TYPE = (
    b'{"name":"a","owning_application":"x","category":"business","enrichment_strategies":["metadata_enrichment"],'
    b'"partition_strategy":"random","partition_key_fields":[],"cleanup_policy":"delete","ordering_key_fields":[],'
    b'"ordering_instance_ids":[],"schema":{"type":"json_schema","schema":"{}","version":"1.0.0","created_at":"t"},'
    b'"default_statistic":null,"options":{"retention_time":1},"authorization":null,"annotations":{},"labels":{},'
    b'"compatibility_mode":"forward","updated_at":"t","created_at":"t"}'
)
MOVED_TO_AVRO = EVENT_TYPE.replace(
    b'"default_statistic"',
    b'"json_schema":{"type":"json_schema","schema":"{}","version":"1.0.0","created_at":"t"},"default_statistic"',
)
SUBSCRIPTION = (
    b'{"id":"1","owning_application":"x","event_types":["a"],"consumer_group":"default","read_from":"end",'
    b'"initial_cursors":[],"created_at":"t","updated_at":"t","authorization":null,"annotations":{},"labels":{}}'
)

TIMELINE = (
    b'{"id":"1","event_type":"a","order":1,"storage_id":"default","topic":"t","partitions":1,"created_at":"t",'
    b'"switched_at":"t","cleaned_up_at":null,"latest_position":null}'
)

STORED = {
    "event-type.created": [b'{"class_version":1,"name":"a","event_type":' + EVENT_TYPE + b"}"],
    "event-type.changed": [
        b'{"class_version":1,"name":"a","event_type":' + EVENT_TYPE + b"}",
        b'{"class_version":1,"name":"a","event_type":' + MOVED_TO_AVRO + b"}",
    ],
    "event-type.schema-added": [
        b'{"class_version":1,"name":"a","schema":{"type":"json_schema","schema":"{}","version":"1.1.0","created_at":"t"}}'
    ],
    "event-type.deleted": [b'{"class_version":1,"name":"a"}'],
    "timeline.opened": [
        (
            b'{"class_version":1,"event_type":"a","timeline":{"id":"1","event_type":"a","order":1,"storage_id":"default",'
            b'"topic":"t","partitions":1,"created_at":"t","switched_at":"t","cleaned_up_at":null,"latest_position":null}}'
        )
    ],
    "timeline.switch-started": [
        b'{"class_version":1,"event_type":"a","timeline":' + TIMELINE + b',"worker":"w"}',
    ],
    "timeline.close-started": [b'{"class_version":1,"event_type":"a","timeline_id":"1"}'],
    "timeline.switched": [b'{"class_version":1,"event_type":"a","timeline":' + TIMELINE + b',"latest_position":[-1]}'],
    "timeline.switch-aborted": [b'{"class_version":1,"event_type":"a","timeline_id":"1","reason":"x"}'],
    "timeline.digested": [
        (
            b'{"class_version":1,"event_type":"a","order":1,"storage":"kafka","topic":"t","blocks":[{"partition":0,'
            b'"first":0,"next":3,"records":2,"digest":"00"}],"next":[3]}'
        )
    ],
    "timeline.cleaned-up": [b'{"class_version":1,"event_type":"a","order":1,"cleaned_up_at":"t"}'],
    "timeline.repartitioned": [b'{"class_version":1,"event_type":"a","partitions":2}'],
    "timeline.deleted": [b'{"class_version":1,"event_type":"a"}'],
    "topic.abandoned": [b'{"class_version":1,"topic":"t","storage_id":"s","event_type":"a"}'],
    "topic.deleted": [b'{"class_version":1,"topic":"t"}'],
    "topic-creation.started": [b'{"class_version":1,"topic":"t","storage_id":"s","event_type":"a","worker":"w"}'],
    "topic-creation.ended": [b'{"class_version":1,"topic":"t"}'],
    "subscription.created": [b'{"class_version":1,"id":"1","subscription":' + SUBSCRIPTION + b"}"],
    "subscription.changed": [b'{"class_version":1,"id":"1","subscription":' + SUBSCRIPTION + b"}"],
    "subscription.cursors-reset": [
        b'{"class_version":1,"id":"1","cursors":[{"partition":"0","offset":"001-0001--1","event_type":"a"}]}',
        (
            b'{"class_version":1,"id":"1","cursors":[{"partition":"0","offset":"001-0001--1","event_type":"a"}],'
            b'"previous":[{"partition":"0","offset":"001-0001-000000000000000007","event_type":"a"}]}'
        ),
    ],
    "subscription.dead-letters-redriven": [
        b'{"class_version":1,"id":"1","wanted":{},"forced":false,"redriven":2}',
        (
            b'{"class_version":1,"id":"1","wanted":{"event_type":"a","partition":"0","from_offset":"001-0001-0",'
            b'"to_offset":"001-0001-1"},"forced":true,"redriven":2}'
        ),
        (
            b'{"class_version":1,"id":"1","wanted":{"event_type":"a","partition":"0","from_offset":"001-0001-0",'
            b'"to_offset":"001-0001-1","reason":"x"},"forced":true,"redriven":2}'
        ),
    ],
    "subscription.deleted": [b'{"class_version":1,"id":"1"}'],
    "subscription-key.claimed": [b'{"class_version":1,"natural_key":"[]","subscription_id":"1"}'],
    "subscription-key.released": [b'{"class_version":1,"natural_key":"[]"}'],
    "storage.created": [
        (
            b'{"class_version":1,"id":"default","storage":{"id":"default","storage_type":"embedded","default":true,'
            b'"configuration":{}}}'
        )
    ],
    "storage.default-changed": [b'{"class_version":1,"id":"default","default":false}'],
    "storage.moved": [b'{"class_version":1,"id":"default","storage_type":"kafka"}'],
    "storage.deleted": [b'{"class_version":1,"id":"default"}'],
    "settings.admins-changed": [
        (
            b'{"class_version":1,"setting":"settings","admins":{"admins":[{"data_type":"user","value":"x"}],"readers":[],'
            b'"writers":[]}}'
        )
    ],
    "settings.blacklist-entry-added": [b'{"class_version":1,"setting":"settings","type":"CONSUMER_APP","name":"x"}'],
    "settings.blacklist-entry-removed": [b'{"class_version":1,"setting":"settings","type":"CONSUMER_APP","name":"x"}'],
    "settings.feature-switched": [
        b'{"class_version":1,"setting":"settings","feature":"kpi_collection","enabled":true}'
    ],
    "settings.loss-accepted": [
        b'{"class_version":1,"setting":"settings","findings":["events.db is missing."],"reason":"x"}'
    ],
    "log-keys.added": [
        b'{"class_version":1,"name":"log-keys","verifier":"l+c74f20a3+ARpc","signature":"\xe2\x80\x94 l AA=="}'
    ],
    "event-chains.anchored": [
        b'{"class_version":1,"storage":"default","heads":[{"topic":"t","partition":0,"first":0,"next":2,"hash":"00"}]}'
    ],
}


def test_every_topic_is_pinned():
    assert set(TOPICS) == set(STORED)


def test_the_audit_log_reports_every_topic():
    assert AUDITED.keys() == set(TOPICS.values())


def test_a_topic_begins_with_the_kind_of_its_aggregate():
    for kind, aggregate in AGGREGATES.items():
        assert {event.TOPIC.partition(".")[0] for event in aggregate.events} == {kind}


@pytest.mark.parametrize(("topic", "stored"), [(topic, data) for topic, forms in STORED.items() for data in forms])
def test_every_form_ever_stored_can_be_read(topic, stored):
    event = TOPICS[topic].decode(stored)
    assert TOPICS[topic].decode(event.encode()) == event


@pytest.mark.parametrize("topic", sorted(STORED))
def test_events_are_written_in_the_last_pinned_form(topic):
    assert TOPICS[topic].decode(STORED[topic][-1]).encode() == STORED[topic][-1]


def test_the_newest_format_of_the_log_has_every_topic_at_the_version_that_is_written():
    """Raising a class version, or adding a topic to a released format, requires a new format."""
    assert list(FORMATS) == list(range(1, newest(FORMATS) + 1))
    assert {topic for each in FORMATS.values() for topic in each.versions} <= TOPICS.keys()
    written = {topic: current_version(event_class) for topic, event_class in TOPICS.items()}
    assert {topic: version_in(topic, newest(FORMATS), FORMATS) for topic in TOPICS} == written


def test_every_class_has_all_steps_from_and_to_its_older_versions():
    for event_class in TOPICS.values():
        steps = {
            step
            for version in range(1, current_version(event_class))
            for step in (f"upcast_v{version}_v{version + 1}", f"downcast_v{version + 1}_v{version}")
        }
        assert steps == {name for name in dir(event_class) if name.startswith(("upcast_v", "downcast_v"))}


def test_the_formats_of_all_releases_are_documented():
    page = Path("docs/concepts/event-sourcing.md").read_text(encoding="utf-8")
    rows = [
        f"| {number} | {each.release} | "
        + (", ".join(f"`{topic}` {version}" for topic, version in each.versions.items()) or "all, at version 1")
        + " |"
        for number, each in FORMATS.items()
    ]
    table = page.partition("| Format | Since release | Class versions |\n")[2].partition("\n\n")[0]
    assert table.splitlines()[1:] == rows


def test_stream_ids_never_change():
    assert stream_id("event-type", "order.created") == UUID("76e9fc3b-426a-53ab-92b4-291da42ef703")
