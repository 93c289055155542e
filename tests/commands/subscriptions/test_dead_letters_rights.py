"""Publishing dead letters again has the checks of publishing and of reading, and an end (reference streams#redrive)."""

import contextlib

import pytest

from rioni.commands.event_types import ChangeEventType
from rioni.commands.subscriptions.dead_letters import FORCED_MAX, RedriveDeadLetters
from rioni.commands.subscriptions.subscriptions import ChangeSubscription
from rioni.commands.system.storages import AddBlacklistEntry, SwitchFeature
from rioni.domain.access.authorization import Attribute, EventTypeAuthorization, Subject, SubscriptionAuthorization
from rioni.domain.errors import AccessDenied, Blocked, ReadOnly
from rioni.domain.publishing.headers import Headers
from rioni.domain.subscriptions.subscription import SubscriptionSpec
from tests.commands.subscriptions.test_dead_letters import (
    ANYTHING,
    dead_letters,
    keep,
    queue,
    redrive,
    stored,
    subscription,
)
from tests.support.builders import as_spec


__all__ = ["dead_letters", "queue", "subscription"]

JANE = Attribute("user", "jane")
OTHER = Attribute("user", "other")
SUBJECT = Subject(name="jane", attributes=frozenset({JANE}))


def withdraw_read(broker, _subscription):
    broker.registry.refresh()
    section = EventTypeAuthorization(admins=(OTHER,), readers=(OTHER,), writers=(JANE,))
    spec = as_spec(broker.registry.event_type("a"))
    broker.do(ChangeEventType(name="a", spec=spec.__class__(**{**_members(spec), "authorization": section})))


def withdraw_administration(broker, subscription):
    section = SubscriptionAuthorization(admins=(OTHER,), readers=(JANE,))
    spec = SubscriptionSpec(owning_application="x", event_types=("a",), authorization=section)
    broker.do(ChangeSubscription(subscription_id=subscription, spec=spec))


def block(kind, name):
    return lambda broker, _subscription: broker.do(AddBlacklistEntry(type=kind, name=name))


def forbid_writing(broker, _subscription):
    broker.do(SwitchFeature(feature="disable_db_write_operations", enabled=True))


def _members(spec):
    return {name: getattr(spec, name) for name in spec.__struct_fields__}


CHECKS = {
    "the event type may not be published to": (block("PRODUCER_ET", "a"), Blocked),
    "the application may not publish": (block("PRODUCER_APP", "jane"), Blocked),
    "the event type may not be streamed": (block("CONSUMER_ET", "a"), Blocked),
    "the application may not stream": (block("CONSUMER_APP", "jane"), Blocked),
    "the right to read is withdrawn": (withdraw_read, AccessDenied),
    "the right to administer is withdrawn": (withdraw_administration, AccessDenied),
    "nothing may be written": (forbid_writing, ReadOnly),
}


@pytest.mark.parametrize(("forbid", "error"), CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize("way", ["redrive", "forced", "preview"])
def test_dead_letters_are_not_published_again_where_publishing_or_reading_is_forbidden(
    broker, queue, dead_letters, subscription, way, forbid, error
):
    """Reference streams#redrive."""
    keep(queue, subscription, 1)
    command = RedriveDeadLetters(subscription_id=subscription, wanted=ANYTHING, limit=10, force=way == "forced")
    assert dead_letters.preview(command, SUBJECT).redriven == 1, "it is allowed until then"
    forbid(broker, subscription)
    attempt = (
        dead_letters.preview if way == "preview" else lambda it, who: dead_letters.redrive(it, broker.context(who))
    )
    with pytest.raises(error):
        attempt(command, SUBJECT)
    assert stored(broker, "a") == []


def test_dead_letters_of_owners_whom_the_subject_may_not_read_are_neither_listed_nor_published(
    broker, queue, dead_letters, subscription
):
    """Reference streams#redrive."""
    broker.do(SwitchFeature(feature="event_owner_selector_authz", enabled=True))
    broker.registry.refresh()
    keep(queue, subscription, 1, headers=[Headers(owner=JANE)])
    keep(queue, subscription, 2, headers=[Headers(owner=OTHER)])
    keep(queue, subscription, 3)
    command = RedriveDeadLetters(subscription_id=subscription, wanted=ANYTHING, limit=10)
    assert [each.owner for each in dead_letters.page(subscription, ANYTHING, 10, SUBJECT).items] == [JANE, None]
    assert dead_letters.preview(command, SUBJECT).redriven == 2
    assert dead_letters.redrive(command, broker.context(SUBJECT)).redriven == 2
    assert {headers.owner for _, headers in stored(broker, "a")} == {JANE, None}


@pytest.mark.parametrize("before", [0, 1])
def test_a_dead_letter_is_published_a_bounded_number_of_times(broker, queue, dead_letters, subscription, before):
    """Reference streams#redrive."""
    keep(queue, subscription, 1)
    for _ in range(before):
        redrive(broker, dead_letters, subscription)
    counts = [redrive(broker, dead_letters, subscription, force=True).redriven for _ in range(FORCED_MAX + 3)]
    assert sum(counts) + before == FORCED_MAX == len(stored(broker, "a"))
    assert redrive(broker, dead_letters, subscription).already_redriven == 1
    command = RedriveDeadLetters(subscription_id=subscription, wanted=ANYTHING, limit=10, force=True)
    assert dead_letters.preview(command, SUBJECT).already_redriven == 1


@pytest.mark.parametrize("force", [False, True])
def test_a_redrive_ends_although_each_event_becomes_a_dead_letter_again(
    broker, queue, dead_letters, subscription, monkeypatch, force
):
    """Reference streams#redrive."""
    monkeypatch.setattr("rioni.commands.subscriptions.dead_letters.SCAN_BYTES", 1)
    keep(queue, subscription, 1, 2)
    append, added = broker.timeline.append, iter(range(10, 30))

    def and_fail(*arguments, **options):
        appended = append(*arguments, **options)
        with contextlib.suppress(StopIteration):
            keep(queue, subscription, next(added))
        return appended

    monkeypatch.setattr(broker.timeline, "append", and_fail)
    assert redrive(broker, dead_letters, subscription, limit=100, force=force).redriven == 2
