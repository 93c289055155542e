"""Counts of event types by what they have in common."""

from rioni.domain.event_types.selection import Count, facets_of
from tests.support.builders import event_type


def test_values_are_counted_and_the_most_frequent_ones_come_first():
    """Reference event-types#facets."""
    event_types = [
        event_type(name="a", owning_application="pay", labels={"team": "x", "tier": "1"}),
        event_type(name="b", labels={"team": "x"}),
        event_type(name="c", cleanup_policy="compact"),
    ]
    found = facets_of(event_types, 2)
    assert found["owning_application"].values == (Count("shop", 2), Count("pay", 1))
    assert found["category"].values == (Count("business", 3),)
    assert found["cleanup_policy"].values == (Count("delete", 2), Count("compact", 1))
    assert found["label"].values == (Count("team:x", 2), Count("tier:1", 1))


def test_no_more_values_than_asked_for_are_listed_but_all_are_counted():
    event_types = [event_type(name=name, owning_application=name) for name in "cab"]
    found = facets_of(event_types, 2)["owning_application"]
    assert [each.value for each in found.values] == ["a", "b"]
    assert found.distinct == 3


def test_without_event_types_all_facets_are_empty():
    assert {(facet.values, facet.distinct) for facet in facets_of([], 10).values()} == {((), 0)}
