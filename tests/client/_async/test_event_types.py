"""Event types through the client: filters and counts."""


def test_filters_select_event_types_and_facets_count_them(client, event_type):
    name = event_type(labels={"team": "x"}, cleanup_policy="delete")
    wanted = {"name": name, "cleanup_policy": "delete", "labels": ["team:x"]}
    assert [each.name for each in client.event_types.list(**wanted)] == [name]
    assert client.event_types.list(**wanted, unused_days=1) == []
    found = client.event_types.facets(**wanted, limit=1)
    assert (found.total, found.label.distinct, found.unused.days) == (1, 1, 30)
    (owner,) = found.owning_application.values
    assert (owner.value, owner.count) == ("shop", 1)


def test_facets_of_the_past_say_nothing_about_use(client, event_type):
    event_type()
    assert client.event_types.facets(as_of=1).unused is None
