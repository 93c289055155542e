"""Storing dead letters and redriving them (reference streams#dead-letter-handling).

Source: reference system-event-types#dead-letter-queue.
"""

import contextlib
import dataclasses
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.commands.event_types import CreateEventType, DeleteEventType
from rioni.commands.subscriptions.dead_letter_queue import DeadLetterQueue
from rioni.commands.subscriptions.dead_letters import (
    PAGE_BYTES,
    REASONS_MAX,
    DeadLetterPage,
    DeadLetterRedriver,
    ReasonCount,
    RedriveDeadLetters,
    Redriven,
)
from rioni.commands.subscriptions.subscriptions import CreateSubscription
from rioni.domain.access.authorization import UNAUTHENTICATED, Attribute
from rioni.domain.errors import EventTypeNotFound, Invalid, InvalidCursor, QuotaExceeded
from rioni.domain.publishing.headers import NO_HEADERS, Headers
from rioni.domain.streaming.batching import Slice
from rioni.domain.subscriptions.dead_letters import DeadLetterFilter
from rioni.domain.subscriptions.subscription import SubscriptionSpec
from rioni.domain.system.storages import DEFAULT_STORAGE
from rioni.domain.system.system_events import DEAD_LETTER_QUEUE, Ownership, dead_letter_queue
from rioni.domain.timelines.position import Cursor, EventTypePartition
from tests.support.broker import DEFAULT_ADMIN, running_broker
from tests.support.builders import event_type_spec
from tests.support.memory import chunk


EVENT = b'{"order_id" : "1", "metadata":{"eid":"x"},"n":1.50,"u":"\\u00e9"}'
ANYTHING = DeadLetterFilter()
NAMES = st.sampled_from(("a", "deleted", "short-lived"))
LETTERS = st.lists(
    st.tuples(NAMES, st.sampled_from(("0", "1")), st.integers(0, 5), st.integers(2, 4)), min_size=1, max_size=8
)
"""Event type, partition, position, and how often each was sent, which is in its reason."""
OFFSETS = st.integers(0, 5).map("001-0001-{:018}".format)
FILTERS = st.builds(
    DeadLetterFilter,
    event_type=st.none() | NAMES,
    partition=st.sampled_from((None, "0", "1")),
    from_offset=st.none() | OFFSETS,
    to_offset=st.none() | OFFSETS,
    reason=st.none() | st.integers(2, 4).map("The event was sent {} times without being committed".format),
)
STEPS = st.lists(st.none() | st.tuples(FILTERS, st.integers(1, 4), st.booleans()), min_size=1, max_size=4)
"""Filter, limit and force of a redrive each; None deletes an event type."""


@pytest.fixture
def subscription(broker):
    return subscribed(broker)


def subscribed(broker):
    """A queue, and a subscription to the event type a; returns its id."""
    broker.do(
        CreateEventType(
            spec=dead_letter_queue(Ownership(readers=DEFAULT_ADMIN, admins=DEFAULT_ADMIN), broker.limits).spec
        )
    )
    broker.do(CreateEventType(spec=event_type_spec(name="a")))
    created, _ = broker.do(CreateSubscription(spec=SubscriptionSpec(owning_application="x", event_types=("a",))))
    broker.registry.refresh()
    return created.id


@pytest.fixture
def queue(broker):
    return queue_of(broker)


def queue_of(broker):
    return DeadLetterQueue(broker.system_event_types, broker.services.system_publisher, broker.clock)


@pytest.fixture
def dead_letters(broker):
    return redriver_of(broker)


def redriver_of(broker):
    return DeadLetterRedriver(
        broker.registry, broker.access, broker.bus, stores=broker.stores, timeline=broker.timeline
    )


def keep(queue, subscription, *positions, event=EVENT, headers=None, origin=("a", "0"), sent=3):
    for position in positions:
        one = Slice(1, chunk(position, [event], headers=headers), position, position + 1)
        queue.keep(subscription, EventTypePartition(*origin), one, sent)


def test_the_reason_of_a_consumer_is_beside_the_message_and_goes_before_it(queue, dead_letters, broker, subscription):
    for position, reason in enumerate(("why", "", "why")):
        one = Slice(1, chunk(position, [EVENT]), position, position + 1)
        queue.keep(subscription, EventTypePartition("a", "0"), one, 3, reason)
    message = "The event was sent 3 times without being committed"
    page = dead_letters.page(subscription, ANYTHING, 10, UNAUTHENTICATED)
    errors = [kept.letter.error for kept in page.items]
    assert errors == [
        {"message": message, "reason": "why"},
        {"message": message},
        {"message": message, "reason": "why"},
    ]
    for reason, count in (("why", 2), (message, 1)):
        found = dead_letters.page(subscription, DeadLetterFilter(reason=reason), 10, UNAUTHENTICATED)
        assert len(found.items) == count
    command = RedriveDeadLetters(subscription_id=subscription, wanted=ANYTHING, limit=10)
    preview = dead_letters.preview(command, UNAUTHENTICATED)
    assert preview.reasons == [ReasonCount(reason="why", count=2), ReasonCount(reason=message, count=1)]


def stored(broker, name):
    timeline = broker.registry.timelines(name).active
    chunks = broker.stores.of(DEFAULT_STORAGE).read(timeline.topic, 0, 0, 1_000_000)
    return [
        (one.cut(position, position + 1), one.headers[position - one.first] if one.headers else None)
        for one in chunks
        for position in range(one.first, one.next)
    ]


class Quota:
    """A quota of events, which are given back too."""

    def __init__(self, events):
        self.left, self.bytes = events, 0

    def __call__(self, events, bytes_):
        if events > self.left:
            raise QuotaExceeded("", ["events"], 1)
        self.left -= events
        self.bytes += bytes_


def test_a_redrive_ends_where_the_quota_is_used_up_and_goes_on_there(broker, queue, dead_letters, subscription):
    keep(queue, subscription, 0, 1, 2, 3, 4)
    redrive(broker, dead_letters, subscription, limit=1)
    quota, command = Quota(2), RedriveDeadLetters(subscription_id=subscription, wanted=ANYTHING, limit=10)
    first = dead_letters.redrive(command, broker.context(), quota)
    # The one that was redriven before costs nothing.
    assert first == Redriven(redriven=2, already_redriven=1, after=place(2))
    assert quota.bytes == 2 * len(EVENT)
    with pytest.raises(QuotaExceeded):
        dead_letters.redrive(dataclasses.replace(command, after=first.after), broker.context(), quota)
    rest = dead_letters.redrive(dataclasses.replace(command, after=first.after), broker.context(), Quota(10))
    assert rest == Redriven(redriven=2)


def redrive(broker, dead_letters, subscription, limit=10, wanted=ANYTHING, **options):
    command = RedriveDeadLetters(subscription_id=subscription, wanted=wanted, limit=limit, **options)
    return dead_letters.redrive(command, broker.context())


def test_a_dead_letter_stored_again_after_a_crash_is_stored_once(broker, queue, subscription):
    keep(queue, subscription, 4, 4, 5, 4)
    assert len(stored(broker, DEAD_LETTER_QUEUE)) == 2


def test_an_event_is_published_again_byte_by_byte_for_its_subscription_and_owner(
    broker, queue, dead_letters, subscription
):
    """Reference streams#redrive, system-event-types#dead-letter-event."""
    owner = Attribute("team", "a")
    keep(queue, subscription, 4, headers=[Headers(owner=owner, key="k")])
    assert redrive(broker, dead_letters, subscription) == Redriven(redriven=1)
    assert stored(broker, "a") == [(EVENT, Headers(owner=owner, subscription_id=subscription))]


def test_redriven_dead_letters_are_left_out_and_do_not_count_for_the_limit(broker, queue, dead_letters, subscription):
    """Reference streams#redrive."""
    keep(queue, subscription, 4, 5, 6)
    assert redrive(broker, dead_letters, subscription, limit=1) == Redriven(redriven=1, after=place(0))
    assert redrive(broker, dead_letters, subscription, limit=1) == Redriven(
        redriven=1, already_redriven=1, after=place(1)
    )
    assert redrive(broker, dead_letters, subscription) == Redriven(redriven=1, already_redriven=2)
    assert redrive(broker, dead_letters, subscription) == Redriven(already_redriven=3)
    assert redrive(broker, dead_letters, subscription, limit=2, force=True) == Redriven(redriven=2, after=place(1))
    assert len(stored(broker, "a")) == 5


class CountedStores:
    """Stores of a broker, and how many dead letters were read there."""

    def __init__(self, stores):
        self.stores, self.read = stores, 0

    def of(self, storage_id):
        return CountedStore(self, self.stores.of(storage_id))


class CountedStore:
    def __init__(self, counted, store):
        self.counted, self.store, self.bounds = counted, store, store.bounds

    def read(self, *arguments):
        chunks = self.store.read(*arguments)
        self.counted.read += sum(each.next - each.first for each in chunks)
        return chunks


@pytest.mark.parametrize("force", [False, True])
def test_requests_that_go_on_where_the_last_one_ended_read_each_dead_letter_about_once(
    broker, queue, subscription, monkeypatch, force
):
    """Reference streams#redrive. As many requests without a place read half the square of their number."""
    number, limit = 60, 3
    for position in range(number):
        keep(queue, subscription, position)
    monkeypatch.setattr("rioni.commands.subscriptions.dead_letters.SCAN_BYTES", 1)
    stores = CountedStores(broker.stores)
    dead_letters = DeadLetterRedriver(
        broker.registry, broker.access, broker.bus, stores=stores, timeline=broker.timeline
    )
    after, answers, previews = None, [], []
    while not answers or after is not None:
        command = RedriveDeadLetters(
            subscription_id=subscription, wanted=ANYTHING, limit=limit, force=force, after=after
        )
        previews.append(dead_letters.preview(command, UNAUTHENTICATED))
        answers.append(dead_letters.redrive(command, broker.context()))
        after = None if answers[-1].after is msgspec.UNSET else answers[-1].after
    assert [each.redriven for each in answers] == [limit] * (number // limit) + [0]
    assert {(each.already_redriven, each.without_event_type) for each in answers} == {(0, 0)}
    assert [each.more for each in previews] == [True] * (number // limit - 1) + [False] * 2
    assert len(stored(broker, "a")) == number
    # A preview reads one more than it counts.
    assert stores.read <= 2 * number + len(answers)


def test_a_redrive_goes_on_only_at_a_place_of_the_queue(broker, queue, dead_letters, subscription):
    keep(queue, subscription, 4, 5)
    assert redrive(broker, dead_letters, subscription, after=Cursor(partition="0", offset="BEGIN")).redriven == 2
    assert redrive(broker, dead_letters, subscription, after=place(1), force=True) == Redriven()
    later = Cursor(partition="0", offset="001-0002-000000000000000000")
    for after in (Cursor(partition="1", offset="BEGIN"), Cursor(partition="0", offset="x"), place(2), later):
        with pytest.raises(InvalidCursor):
            redrive(broker, dead_letters, subscription, after=after)
        with pytest.raises(InvalidCursor):
            dead_letters.page(subscription, ANYTHING, 1, UNAUTHENTICATED, after=after)


def place(position):
    return Cursor(partition="0", offset=f"001-0001-{position:018}")


@given(LETTERS, STEPS)
def test_a_preview_says_what_the_redrive_then_does_and_changes_nothing(tmp_path_factory, letters, steps):
    """Reference streams#redrive-preview."""
    with running_broker(tmp_path_factory.mktemp("data") / "data") as broker:
        subscription, queue, dead_letters = subscribed(broker), queue_of(broker), redriver_of(broker)
        broker.do(CreateEventType(spec=event_type_spec(name="short-lived")))
        for name, partition, position, sent in letters:
            keep(queue, subscription, position, origin=(name, partition), sent=sent)
        for step in steps:
            if step is not None:
                check_preview(broker, dead_letters, subscription, *step)
            else:
                with contextlib.suppress(EventTypeNotFound):
                    broker.do(DeleteEventType(name="short-lived"))


def check_preview(broker, dead_letters, subscription, wanted, limit, force):
    def preview(wanted, limit=limit):
        command = RedriveDeadLetters(subscription_id=subscription, wanted=wanted, limit=limit, force=force)
        return dead_letters.preview(command, UNAUTHENTICATED)

    before = (stored(broker, "a"), broker.log.head().position)
    try:
        found, everything = preview(wanted), preview(wanted, limit=1_000)
    except Invalid:
        with pytest.raises(Invalid, match=r"does not read|there is no partition"):
            redrive(broker, dead_letters, subscription, limit, wanted, force=force)
        return
    assert (stored(broker, "a"), broker.log.head().position) == before
    assert found.more == (everything.redriven > limit)
    assert sum(each.count for each in found.reasons) == found.redriven
    for each in everything.reasons:
        assert preview(msgspec.structs.replace(wanted, reason=each.reason), limit=1_000).redriven == each.count
    done = redrive(broker, dead_letters, subscription, limit, wanted, force=force)
    counts = {name: getattr(found, name) for name in Redriven.__struct_fields__}
    assert Redriven(**counts) == done


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"event_type": "aa"}, "does not read aa; did you mean a?"),
        ({"event_type": "b"}, "does not read b"),
        ({"partition": "1"}, "there is no partition 1; there are 0 to 0"),
        ({"partition": "-1"}, "there is no partition -1"),
        ({"event_type": "a", "partition": "x"}, "there is no partition x"),
    ],
)
def test_a_filter_that_selects_nothing_and_names_nothing_of_the_subscription_is_refused(
    wanted, reason, broker, queue, dead_letters, subscription
):
    """Reference streams#listing-dead-letters."""
    keep(queue, subscription, 0)
    wanted = DeadLetterFilter(**wanted)
    command = RedriveDeadLetters(subscription_id=subscription, wanted=wanted, limit=9)
    for refused in (
        lambda: dead_letters.page(subscription, wanted, 9, UNAUTHENTICATED),
        lambda: dead_letters.preview(command, UNAUTHENTICATED),
        lambda: redrive(broker, dead_letters, subscription, 9, wanted),
    ):
        with pytest.raises(Invalid, match=re.escape(reason)):
            refused()


def test_dead_letters_of_partitions_and_event_types_that_are_gone_are_selected(queue, dead_letters, subscription):
    """Reference streams#listing-dead-letters."""
    for origin in (("a", "7"), ("gone", "0")):
        keep(queue, subscription, 0, origin=origin)
        wanted = DeadLetterFilter(event_type=origin[0], partition=origin[1])
        page = dead_letters.page(subscription, wanted, 9, UNAUTHENTICATED)
        assert len(page.items) == 1
        assert dead_letters.page(subscription, wanted, 9, UNAUTHENTICATED, after=page.items[0].cursor).items == []


def test_a_preview_tells_a_bounded_number_of_reasons(broker, queue, dead_letters, subscription):
    for sent in range(REASONS_MAX + 5):
        keep(queue, subscription, sent, sent=sent)
    keep(queue, subscription, 100, 101, sent=3)
    command = RedriveDeadLetters(subscription_id=subscription, wanted=ANYTHING, limit=1_000)
    found = dead_letters.preview(command, UNAUTHENTICATED)
    assert (found.redriven, len(found.reasons), found.more) == (REASONS_MAX + 7, REASONS_MAX, False)
    assert found.reasons[0] == ReasonCount(reason="The event was sent 3 times without being committed", count=3)


def test_a_list_marks_what_was_redriven_where_that_is_asked_for(broker, queue, dead_letters, subscription):
    """Reference streams#listing-dead-letters."""
    keep(queue, subscription, 4, 5)
    keep(queue, subscription, 6, origin=("deleted", "0"))
    redrive(broker, dead_letters, subscription, limit=1)
    page = dead_letters.page(subscription, ANYTHING, 10, UNAUTHENTICATED, marked=True).items
    assert [each.redriven for each in page] == [True, False, False]
    assert {each.redriven for each in dead_letters.page(subscription, ANYTHING, 10, UNAUTHENTICATED).items} == {None}


def test_a_page_of_large_events_is_short_and_the_next_goes_on_behind_it(queue, dead_letters, subscription):
    """However many dead letters are asked for, an answer has a bounded size, and nothing is left out or twice there."""
    large = b'{"text":"%b"}' % (b"x" * (PAGE_BYTES // 3))
    keep(queue, subscription, *range(1, 8), event=large)
    sizes, seen, after = [], [], None
    while True:
        page = dead_letters.page(subscription, ANYTHING, 1_000, UNAUTHENTICATED, after=after)
        sizes.append(len(page.items))
        seen += [each.letter.offset for each in page.items]
        if (after := page.after) is None:
            break
    assert sizes == [3, 3, 1]
    assert seen == [f"001-0001-{position:018}" for position in range(1, 8)]
    of_two = dead_letters.page(subscription, ANYTHING, 2, UNAUTHENTICATED)
    assert of_two.after == of_two.items[-1].cursor


class JoinedStore:
    """Has all events of a partition in one chunk, as stores have those that were appended at the same time."""

    def __init__(self, store):
        self.store, self.bounds = store, store.bounds

    def read(self, topic, number, first, *_):
        found = self.store.read(topic, number, 0, 1_000_000)
        if not found or first >= found[-1].next:
            return ()
        places = [(each, position) for each in found for position in range(each.first, each.next)]
        headers = [each.headers[position - each.first] if each.headers else NO_HEADERS for each, position in places]
        events = [each.cut(position, position + 1) for each, position in places]
        return [chunk(0, events, found[0].recorded_at_ms, headers)]


class JoinedStores:
    def __init__(self, stores):
        self.of = lambda storage: JoinedStore(stores.of(storage))


@pytest.fixture
def joined(broker):
    return DeadLetterRedriver(
        broker.registry, broker.access, broker.bus, stores=JoinedStores(broker.stores), timeline=broker.timeline
    )


@pytest.mark.parametrize("owner", [None, Attribute(data_type="user", value="shop")], ids=["open", "owned"])
@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8])
def test_pages_go_on_within_dead_letters_that_were_stored_together(queue, joined, subscription, limit, owner):
    headers = owner and [Headers(owner=owner)]
    keep(queue, subscription, *range(7), headers=headers)
    seen, after = [], None
    for _ in range(8):
        page = joined.page(subscription, ANYTHING, limit, UNAUTHENTICATED, after=after)
        seen += [each.letter.offset for each in page.items]
        if (after := page.after) is None:
            break
    assert seen == [f"001-0001-{position:018}" for position in range(7)]
    assert after is None


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("limit", [1, 3, 7])
def test_redrives_go_on_within_dead_letters_that_were_stored_together(
    broker, queue, joined, subscription, limit, force
):
    keep(queue, subscription, *range(7))
    after, answers, previews = None, [], []
    for _ in range(8):
        command = RedriveDeadLetters(
            subscription_id=subscription, wanted=ANYTHING, limit=limit, force=force, after=after
        )
        previews.append(joined.preview(command, UNAUTHENTICATED).redriven)
        answers.append(joined.redrive(command, broker.context()))
        after = answers[-1].after
        if after is msgspec.UNSET:
            break
    assert [each.redriven for each in answers] == previews
    assert (sum(previews), sum(each.already_redriven for each in answers)) == (7, 0)
    assert after is msgspec.UNSET
    assert len(stored(broker, "a")) == 7


def test_an_event_of_the_maximum_depth_is_kept(broker, queue, subscription):
    event = b'{"a":' + b"[" * 63 + b"]" * 63 + b"}"
    keep(queue, subscription, 4, event=event)
    assert event in stored(broker, DEAD_LETTER_QUEUE)[0][0]


def test_dead_letters_of_other_subscriptions_are_not_shown(broker, queue, dead_letters, subscription):
    other, _ = broker.do(CreateSubscription(spec=SubscriptionSpec(owning_application="y", event_types=("a",))))
    broker.registry.refresh()
    keep(queue, subscription, 4)
    assert dead_letters.page(other.id, ANYTHING, 10, UNAUTHENTICATED) == DeadLetterPage([])
    (kept,) = dead_letters.page(subscription, ANYTHING, 10, UNAUTHENTICATED).items
    assert bytes(kept.letter.event) == EVENT
