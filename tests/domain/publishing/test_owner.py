import pytest

from rioni.domain.access.authorization import Attribute
from rioni.domain.event_types.event_type import EventOwnerSelector
from rioni.domain.publishing.owner import OwnerSelector


EVENT = {
    "security": {"reader": "acme", "no": None, "id": 7, "share": 0.5, "open": False, "both": ["a", {"b": 1}]},
    "a.b": {"c": "quoted"},
    "metadata": {"published_by": "stups_shop"},
}


def finder(value, type_="path", *, enriches=True):
    return OwnerSelector.of(EventOwnerSelector(type=type_, name="retailer_id", value=value), enriches=enriches)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("security.reader", "acme"),
        ("security.id", "7"),
        ("security.share", "0.5"),
        ("security.open", "false"),
        ("security.both", '["a",{"b":1}]'),
        ("'a.b'.c", "quoted"),
        ("metadata.published_by", "stups_shop"),
    ],
)
def test_a_path_leads_to_the_owner(path, value):
    """Reference event-types#owner-selector, publishing#event-owners."""
    assert finder(path).find(EVENT) == Attribute("retailer_id", value)


@pytest.mark.parametrize(
    "path", ["security.no", "security.missing", "security.reader.deeper", "nowhere", "security.both.0"]
)
def test_without_a_value_at_the_path_the_event_has_no_owner(path):
    assert finder(path).find(EVENT) is None


def test_a_static_owner_owns_all_events():
    assert finder("acme", "static").find({}) == Attribute("retailer_id", "acme")


@pytest.mark.parametrize(
    ("path", "enriches", "late"),
    [
        ("metadata.published_by", True, True),
        ("metadata.flow_id", True, True),
        ("metadata.partition", True, True),
        ("metadata.published_by", False, False),
        ("metadata.eid", True, False),
        ("metadata.version.x", True, False),
        ("data.version", True, False),
        ("version", True, False),
    ],
)
def test_only_paths_into_enriched_metadata_are_read_after_enrichment(path, enriches, late):
    """Reference publishing#event-owners."""
    assert finder(path, enriches=enriches).enriched is late
