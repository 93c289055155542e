"""The contract of the port `Activity`: subclasses provide the fixtures `activity` and `other`."""

import pytest

from rioni.domain.system.client_activity import Activity, ActivityKey, LastActivity


ALICE = ActivityKey("publish", "order", "alice")


def by_client(activity: Activity, action: str, resource: str) -> dict[str, LastActivity]:
    """The activity of each client by one action."""
    return {key.client: seen for key, seen in activity.of_any([action], resource).items()}


class ActivityContract:
    @pytest.fixture
    def other(self, activity: Activity) -> Activity:
        """The activity as another process sees it, or an equivalent."""
        return activity

    def test_at_first_there_is_no_activity(self, activity: Activity):
        assert by_client(activity, "publish", "order") == {}

    def test_amounts_add_up_and_times_widen_over_all_processes(self, activity: Activity, other: Activity):
        activity.add({ALICE: LastActivity(20, 30, 5)})
        other.add({ALICE: LastActivity(10, 25, 2)})
        activity.add({ALICE: LastActivity(40, 40, 0)})
        assert by_client(other, "publish", "order") == {"alice": LastActivity(10, 40, 7)}

    def test_clients_actions_and_resources_are_recorded_separately(self, activity: Activity):
        sightings = [ALICE, ALICE._replace(client="bob"), ALICE._replace(action="read"), ALICE._replace(resource="o")]
        activity.add({sighting: LastActivity(1, 1, number) for number, sighting in enumerate(sightings, 1)})
        assert list(by_client(activity, "publish", "order").items()) == [
            ("alice", LastActivity(1, 1, 1)),
            ("bob", LastActivity(1, 1, 2)),
        ]
        assert by_client(activity, "read", "order") == {"alice": LastActivity(1, 1, 3)}
        assert by_client(activity, "publish", "o") == {"alice": LastActivity(1, 1, 4)}

    def test_all_of_several_actions_on_a_resource_are_found_at_once(self, activity: Activity, other: Activity):
        bob = ALICE._replace(action="read", client="bob")
        activity.add({ALICE: LastActivity(1, 2, 3), ALICE._replace(action="delete"): LastActivity(1, 1, 1)})
        other.add({bob: LastActivity(4, 5, 6), bob._replace(resource="o"): LastActivity(1, 1, 1)})
        wanted = ["publish", "read", "absent"]
        assert activity.of_any(wanted, "order") == {ALICE: LastActivity(1, 2, 3), bob: LastActivity(4, 5, 6)}
        assert activity.of_any(wanted, "another") == activity.of_any([], "order") == {}

    def test_any_text_is_allowed_as_a_name(self, activity: Activity):
        hostile = ActivityKey("publish", "order", "'; DROP TABLE sightings; --\x00 é🛫")
        activity.add({hostile: LastActivity(1, 1, 1)})
        assert list(by_client(activity, "publish", "order")) == [hostile.client]
        assert list(activity.of_any(["publish"], "order")) == [hostile]

    def test_clients_without_activity_since_a_time_are_removed(self, activity: Activity, other: Activity):
        bob = ALICE._replace(client="bob")
        activity.add({ALICE: LastActivity(1, 99, 1), bob: LastActivity(1, 100, 1)})
        other.delete_before(100)
        assert list(by_client(activity, "publish", "order")) == ["bob"]

    def test_resources_with_activity_since_a_time_are_known(self, activity: Activity, other: Activity):
        sub = ActivityKey("stream", "subscription", "bob")
        activity.add({ALICE: LastActivity(1, 99, 1), ALICE._replace(client="bob"): LastActivity(1, 50, 1)})
        other.add({sub: LastActivity(100, 100, 1)})
        assert set(activity.active_since(50)) == {"order", "subscription"}
        assert set(other.active_since(99)) == {"order", "subscription"}
        assert set(activity.active_since(100)) == {"subscription"}
        assert set(activity.active_since(101)) == set()
