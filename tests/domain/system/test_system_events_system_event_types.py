"""The definitions of system event types conform to the rules of all event types.

Source: reference system-event-types#all-system-event-types.
"""

import pytest

from rioni.domain.access.authorization import Attribute, EventTypeAuthorization
from rioni.domain.event_types import rules
from rioni.domain.limits import Limits
from rioni.domain.schema_changes import check_submitted_schema
from rioni.domain.subscriptions.dead_letters import POLICY, SEND_COUNT
from rioni.domain.system import system_events as own
from tests.support.builders import NOW, subscription


LIMITS = [
    Limits(),
    Limits(retention_min_ms=1, retention_default_ms=1_000, retention_max_ms=2_000),
    Limits(retention_min_ms=400_000_000, retention_default_ms=400_000_000, retention_max_ms=500_000_000),
    Limits(partitions_max=1),
]
AUDITORS, ADMIN = Attribute("team", "auditors"), Attribute("service", "operations")
OWNERSHIP = own.Ownership(application="auditors", readers=AUDITORS, admins=ADMIN)


def all_of_them(limits):
    return [own.audit_log(OWNERSHIP, limits), *own.kpis(OWNERSHIP, limits), own.dead_letter_queue(OWNERSHIP, limits)]


@pytest.mark.parametrize("limits", LIMITS)
def test_system_event_types_can_be_created_with_any_limits(limits):
    for name, spec, _ in all_of_them(limits):
        assert spec.name == name
        rules.check_fields(spec)
        rules.check_retention(spec.options, limits)
        event_type = rules.new(spec, now=NOW, limits=limits)
        check_submitted_schema(event_type)
        rules.check_strategies(event_type)
        rules.check_authorization(event_type)


def test_names_of_system_event_types_are_known_even_before_their_creation():
    assert {name for name, _, _ in all_of_them(Limits())} == own.NAMES


def test_system_event_types_have_their_configured_owner_and_readers():
    """Reference system-event-types#access, system-event-types#common-definition."""
    for _, spec, _ in all_of_them(Limits()):
        assert spec.owning_application == "auditors"
        assert spec.authorization == EventTypeAuthorization(admins=(ADMIN,), readers=(AUDITORS,), writers=(ADMIN,))


def test_the_audiences_of_system_event_types_are_those_of_nakadi():
    """Reference system-event-types#kpi-definition, system-event-types#audit-definition."""
    assert {name: spec.audience for name, spec, _ in all_of_them(Limits())} == {
        "nakadi.access.log": None,
        "nakadi.audit.log": "company-internal",
        "nakadi.batch.published": "component-internal",
        "nakadi.data.streamed": "component-internal",
        "nakadi.dead.letter.queue": "company-internal",
        "nakadi.event.type.log": "component-internal",
        "nakadi.subscription.log": None,
    }


@pytest.mark.parametrize(
    ("annotations", "wanted"),
    [
        ({}, False),
        ({SEND_COUNT: "3", POLICY: "SKIP_EVENT"}, False),
        ({SEND_COUNT: "3", POLICY: "DEAD_LETTER_QUEUE"}, True),
    ],
)
def test_a_subscription_requires_the_dead_letter_queue_by_annotation(annotations, wanted):
    assert own.wants_dead_letters(subscription(annotations=annotations)) == wanted
