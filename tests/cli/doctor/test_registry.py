import pytest

from rioni.cli.doctor.registry import EventTypeFacts, Overdue, Overdues
from rioni.wire.access import Admins, Attribute
from rioni.wire.administration import Blacklist, Blocked, Check, Feature, Health, Storage
from tests.support.doctor_cases import Cases, ago, check_healthy, check_sick, error, healthy, sick, warning


def ready(mode):
    return Health(status="ok", checks={"access": Check(status="ok", detail=f"auth_mode {mode}")})


def event_type(name="order.created", **changes):
    members = {
        "owner": "shop",
        "created_at": ago(days=90),
        "authorization": True,
        "open_to": [],
        "retention_ms": 1,
    } | changes
    return EventTypeFacts(name, **members)


def lists(**names):
    nothing = Blacklist(producers=Blocked(), consumers=Blocked())
    for kind, blocked in names.items():
        setattr(nothing, kind, blocked)
    return nothing


ANYBODY, KNOWN, JANE = Attribute.parse("*:*"), Attribute.parse("service:stups_nakadi"), Attribute.parse("user:jane")
KAFKA = {"bootstrap_servers": "k:9092", "replication_factor": 3, "min_insync_replicas": 2}
CASES = {
    "administrators": Cases(
        [
            [Admins(admins=[JANE], readers=[JANE], writers=[JANE]), ready("basic")],
            [Admins(admins=[KNOWN]), ready("off")],
            [Admins(admins=[ANYBODY]), Health(status="ok")],
        ],
        [
            error("among the admins", Admins(admins=[ANYBODY]), ready("full")),
            error("among the writers", Admins(writers=[ANYBODY]), ready("full")),
            warning("among the readers", Admins(readers=[ANYBODY]), ready("full")),
            error("stups_nakadi", Admins(admins=[KNOWN]), ready("basic")),
        ],
    ),
    "blocked": Cases(
        [[lists()]],
        [
            warning("Publishing is blocked for the applications a", lists(producers=Blocked(apps=["a"]))),
            warning("Consuming is blocked for the event types b", lists(consumers=Blocked(event_types=["b"]))),
        ],
    ),
    "restrictions": Cases(
        [
            [[Feature(feature="kpi_collection", enabled=True)]],
            [[Feature(feature="disable_db_write_operations", enabled=False)]],
        ],
        [warning("nothing can be created", [Feature(feature="disable_db_write_operations", enabled=True)])],
    ),
    "storage-safety": Cases(
        [
            [[Storage(id="default", storage_type="embedded", default=True)]],
            [[Storage(id="k", storage_type="kafka", default=True, kafka_configuration=KAFKA)]],
        ],
        [
            error("No storage", [Storage(id="x", storage_type="embedded")]),
            warning(
                "One broker of Kafka",
                [
                    Storage(
                        id="k",
                        storage_type="kafka",
                        default=True,
                        kafka_configuration=KAFKA | {"min_insync_replicas": 1},
                    )
                ],
            ),
        ],
    ),
    "event-type-authorization": Cases(
        [
            [[event_type()], ready("basic")],
            [[event_type(authorization=False)], ready("off")],
            [[event_type("nakadi.audit.log", authorization=False)], ready("basic")],
        ],
        [
            warning("1 event types have no", [event_type(authorization=False)], ready("basic")),
            warning("e, and 2 more.", [event_type(name, authorization=False) for name in "abcdefg"], ready("full")),
            warning("among the writers of 1", [event_type(open_to=["writers"])], ready("basic")),
        ],
    ),
    "event-type-owners": Cases([[[event_type()]]], [warning("no owning application", [event_type(owner=" ")])]),
    "unused-event-types": Cases([[[]]], [warning("Nobody has used 2 event types for 30 days: a, b.", ["a", "b"])]),
    "timelines": Cases(
        [[Overdues([])], [Overdues([Overdue("a", 1, ago(minutes=5))])]],
        [warning("timeline 2 of b", Overdues([Overdue("a", 1, ago(days=1)), Overdue("b", 2, ago(days=2))]))],
    ),
}


@pytest.mark.parametrize(("name", "facts"), healthy(CASES))
def test_nothing_is_found_in_a_healthy_registry(name, facts):
    check_healthy(name, facts)


@pytest.mark.parametrize(("name", "case"), sick(CASES))
def test_what_administrators_left_is_found(name, case):
    check_sick(name, case)
