"""`rioni event-types facets`: event types counted by what they have in common."""

from rioni.client import EventType, Schema


def test_event_types_are_counted(rioni, client, name, snapshot):
    for number, application in enumerate((name, name, "shop")):
        definition = {"owning_application": application, "schema": Schema.json({}), "labels": {"team": "x"}}
        client.event_types.create(EventType(name=f"{name}.{number}", **definition))
    code, out, _ = rioni("event-types", "facets", "--name", f"{name}.*", "--label", "team:x", "--json")
    assert code == 0
    snapshot("event-types-facets", out.replace(name, "counted"))
    code, out, _ = rioni("event-types", "facets", "--name", f"{name}.*", "--limit", "1")
    assert code == 0
    assert [line.split()[-1] for line in out.splitlines() if line.startswith(("owning_application", "total"))] == [
        "2",
        "3",
    ]


def test_a_filter_that_the_broker_does_not_know_is_an_error(rioni):
    code, _, err = rioni("event-types", "facets", "--cleanup-policy", "none")
    assert code == 2
    assert "compact_and_delete" in err
