"""The headers stored with events: keys, owners, the subscription that they are for, and ids for deduplication.

Source: reference publishing#metadata.
"""

import pytest

from rioni.domain.access.authorization import Attribute
from rioni.domain.errors import AccessDenied, Invalid
from rioni.domain.event_types.event_type import EventOwnerSelector
from rioni.domain.publishing.headers import Headers
from tests.support.publishing import EIDS, event, item, publish, rejections, rules


COMPACTED = {"cleanup_policy": "compact", "partition_strategy": "user_defined", "partitions": 3}
ACME = Attribute("retailer", "acme")
SUBSCRIPTION = EIDS[4]


def keyed(index, key="k", **metadata):
    return event(index, metadata={"partition_compaction_key": key, "partition": str(index), **metadata})


def owned(value, type_="path"):
    return rules(event_owner_selector=EventOwnerSelector(type=type_, name="retailer", value=value))


def permits_any_owner(_owner, _eid):
    pass


def permits_acme(owner, eid):
    if owner != ACME:
        raise AccessDenied("WRITE", f"event:{eid}")


# --- keys ---


def test_ordinary_events_have_no_headers():
    assert publish([event()]).headers is None
    assert publish([event(brand="acme")], owned("brand")).headers is None, "the feature is off"


def test_compacted_events_have_their_key():
    """Reference publishing#compaction-key."""
    headers = publish([keyed(0, "a"), keyed(2, "b")], rules(**COMPACTED)).headers
    assert headers == {0: [Headers(key="a")], 2: [Headers(key="b")]}


def test_tagged_events_are_for_one_subscription():
    headers = publish([event(0), event(1)], subscription_id=SUBSCRIPTION).headers
    assert headers == {0: [Headers(subscription_id=SUBSCRIPTION)] * 2}


ODD = "\x1fowned:"
"""How stored keys of owners begin."""
WAYS = [
    (key, brand)
    for key in ("k", "l", "", f'{ODD}["retailer","acme","k"]', f'{ODD}["k"]', '["retailer","acme","k"]', "acme\n:k")
    for brand in (None, "acme", "other", "", f"{ODD}acme")
    if key
]


@pytest.mark.parametrize("deletes", [False, True])
def test_events_of_different_owners_never_have_the_same_stored_key(deletes):
    """Reference publishing#compaction-key."""
    by = rules(event_owner_selector=EventOwnerSelector(type="path", name="retailer", value="brand"), **COMPACTED)
    stored = {}
    for key, brand in WAYS:
        events = [keyed(0, key, partition="0") | {"brand": brand}]
        (headers,) = publish(events, by, check_owner=permits_any_owner, deletes=deletes).headers.values()
        stored[key, brand] = headers[0].key
    assert len(set(stored.values())) == len(WAYS)
    assert stored["k", None] == "k", "who names no owner finds the keys of earlier releases"
    assert publish([keyed(0, "k") | {"brand": "acme"}], by).headers == {0: [Headers(key="k")]}, "the feature is off"


def test_a_deletion_of_another_owner_is_refused():
    by = rules(event_owner_selector=EventOwnerSelector(type="path", name="retailer", value="brand"), **COMPACTED)
    deletion = {"brand": "other", "metadata": {"partition_compaction_key": "k", "partition": "0"}}
    (result,) = rejections([deletion], by, check_owner=permits_acme, deletes=True)
    assert result["detail"].startswith("Access on WRITE event")


# --- owners ---


def test_each_event_has_its_owner():
    events = [event(0, brand="acme"), event(1), event(2, brand=None), event(3, brand=7)]
    headers = publish(events, owned("brand"), check_owner=permits_any_owner).headers
    assert headers == {0: [Headers(owner=ACME), Headers(), Headers(), Headers(owner=Attribute("retailer", "7"))]}


def test_a_static_owner_owns_every_event():
    headers = publish([event()], owned("acme", "static"), check_owner=permits_acme).headers
    assert headers == {0: [Headers(owner=ACME)]}


def test_an_owner_may_be_a_field_set_by_the_broker():
    def permits_no_owner(owner, eid):
        raise AccessDenied("WRITE", f"event:{eid}")

    by = owned("metadata.published_by")
    assert publish([event()], by, publisher="acme", check_owner=permits_acme).headers == {0: [Headers(owner=ACME)]}
    assert rejections([event(0), event(1)], by, check_owner=permits_no_owner) == [
        item("failed", "enriching", 0, f"Access on WRITE event:{EIDS[0]} denied", partition="0"),
        item("aborted", "enriching", 1, partition="0"),
    ]


def test_events_of_other_owners_can_not_be_published():
    events = [event(0, brand="acme"), event(1, brand="other"), event(2, order_id=1)]
    assert rejections(events, owned("brand"), check_owner=permits_acme) == [
        item("aborted", "validating", 0),
        item("failed", "validating", 1, f"Access on WRITE event:{EIDS[1]} denied"),
        item("aborted", "none", 2),
    ]


def test_owners_are_checked_before_the_schema():
    """Reference publishing#refused-batches."""
    events = [event(0, brand="acme", order_id=1), event(1, brand="acme")]
    results = rejections(events, owned("brand"), check_owner=permits_acme)
    assert [(result["publishing_status"], result["step"]) for result in results] == [
        ("failed", "validating"),
        ("aborted", "validating"),
    ]
    assert rejections([event(0, brand="other", order_id=1)], owned("brand"), check_owner=permits_acme)[0]["detail"] == (
        f"Access on WRITE event:{EIDS[0]} denied"
    )


# --- ids ---


def test_eids_are_used_for_deduplication_if_the_event_type_requires_it():
    """Reference publishing#event-ids."""
    by = rules(annotations={"rioni.io/idempotent-publishing": "on"})
    (ids,) = publish([event(0), event(1, metadata={"eid": EIDS[1].upper()})], by).ids.values()
    assert ids == [f"{by.scope}:{EIDS[0]}", f"{by.scope}:{EIDS[1]}"]
    assert publish([event(0)]).ids is None
    assert publish([event(0)], rules(annotations={"rioni.io/idempotent-publishing": "off"})).ids is None


def test_an_eid_of_events_with_other_readers_stands_for_another_event():
    """Reference publishing#event-ids."""
    once = {"annotations": {"rioni.io/idempotent-publishing": "on"}}
    plain, owned_by = (
        rules(**once),
        rules(event_owner_selector=EventOwnerSelector(type="path", name="retailer", value="brand"), **once),
    )
    found = []
    for brand in ("acme", "other", None):
        for subscription_id in (None, SUBSCRIPTION, EIDS[1]):
            says = {"subscription_id": subscription_id, "check_owner": permits_any_owner}
            (ids,) = publish([event(0, brand=brand)], owned_by, **says).ids.values()
            assert publish([event(0, brand=brand)], owned_by, **says).ids == {0: ids}
            found += ids
    assert len(set(found)) == len(found) == 9
    assert f"{owned_by.scope}:{EIDS[0]}" in found
    (tagged,) = publish([event(0)], plain, subscription_id=SUBSCRIPTION).ids.values()
    assert tagged != [f"{plain.scope}:{EIDS[0]}"]


# --- deletions ---


def test_a_deletion_is_a_tombstone_with_a_key():
    deletion = {"metadata": {"partition_compaction_key": "a", "partition": "2"}}
    prepared = publish([deletion], rules(**COMPACTED), deletes=True)
    assert (prepared.batches, prepared.headers) == ({2: [b""]}, {2: [Headers(key="a")]})


@pytest.mark.parametrize(
    ("deletion", "detail"),
    [
        ({}, "#: required key [metadata] not found"),
        ({"metadata": 1}, "#/metadata: expected type: JSONObject, found: Integer"),
        ({"metadata": {}}, "#/metadata: required key [partition_compaction_key] not found"),
        (
            {"metadata": {"partition_compaction_key": 1}},
            "#/metadata/partition_compaction_key: expected type: String, found: Integer",
        ),
        (
            {"metadata": {"partition_compaction_key": ""}},
            "#/metadata/partition_compaction_key: expected minLength: 1, actual: 0",
        ),
    ],
)
def test_a_deletion_needs_a_key(deletion, detail):
    """Reference publishing#deletable-events."""
    results = rejections([keyed(0), deletion, keyed(2)], rules(**COMPACTED), deletes=True)
    assert [(result["publishing_status"], result["step"], result["detail"]) for result in results] == [
        ("aborted", "validating", ""),
        ("failed", "validating", detail),
        ("aborted", "none", ""),
    ]


def test_a_deletion_must_not_be_too_large():
    assert rejections([{**keyed(0), "pad": "x" * 1_000_000}], rules(**COMPACTED), deletes=True)[0]["detail"].endswith(
        "max size is 999000 bytes"
    )


def test_a_deletion_needs_the_fields_that_choose_its_partition():
    by = rules(cleanup_policy="compact", partition_strategy="hash", partition_key_fields=("brand",), partitions=3)
    results = rejections([keyed(0)], by, deletes=True)
    assert results == [item("failed", "partitioning", 0, "field brand doesn't exist.")]


def test_the_events_of_an_event_type_that_is_not_compacted_can_not_be_deleted():
    """Reference publishing#deletable-events."""
    detail = "It is not allowed to delete events from non compacted event type"
    assert rejections([event(0), event(1)], rules(), deletes=True) == [
        item("aborted", "none", index, detail) for index in range(2)
    ]
    with pytest.raises(Invalid, match=detail):
        publish([], rules(), deletes=True)


def test_a_deletion_with_the_random_strategy_needs_a_single_partition():
    """Reference publishing#deletable-events."""
    (result,) = rejections([keyed(0)], rules(cleanup_policy="compact", partitions=2), deletes=True)
    assert (result["publishing_status"], result["step"]) == ("aborted", "none")
    assert "partition strategy 'hash' or 'user_defined'" in result["detail"]
    assert publish([keyed(0)], rules(cleanup_policy="compact"), deletes=True).batches == {0: [b""]}


def test_events_of_other_owners_can_not_be_deleted():
    for selector, says in (("brand", {"brand": "other"}), ("metadata.published_by", {})):
        owner = EventOwnerSelector(type="path", name="retailer", value=selector)
        by = rules(cleanup_policy="compact", event_owner_selector=owner)
        (result,) = rejections([{**keyed(0), **says}], by, deletes=True, check_owner=permits_acme)
        assert result["detail"] == f"Access on WRITE event:{EIDS[0]} denied"
