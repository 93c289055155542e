"""Subscriptions with dead letters, for tests of the console."""

from dataclasses import dataclass

from tests.console.sample import HOSTILE, keep_a_dead_letter
from tests.support import dead_letters
from tests.support.server import RunningServer


@dataclass(frozen=True)
class Letters:
    """A subscription, and the event type that it reads."""

    broker: RunningServer
    event_type: str
    id: str

    @property
    def path(self) -> str:
        """The tab of its dead letters."""
        return f"/console/subscriptions/{self.id}?tab=dead+letters"

    def fail(self) -> None:
        """Publish an event that no consumer commits, until it is a dead letter."""
        with self.broker.client() as api:
            api.post(f"/event-types/{self.event_type}/events", json=[{"order": 0, HOSTILE: HOSTILE}])
        keep_a_dead_letter(self.broker, f"/subscriptions/{self.id}", {})

    def write(self, first: int, number: int, reason: str = dead_letters.REASON, event_type: str = "") -> None:
        """Write dead letters into the queue, as many failures leave them there."""
        name = event_type or self.event_type
        letters = [
            dead_letters.dead_letter(self.id, name, position, {"order": position, "note": HOSTILE}, reason)
            for position in range(first, first + number)
        ]
        with self.broker.client() as api:
            dead_letters.write(api, letters)

    def events(self) -> int:
        """How many events the event type has."""
        with self.broker.client() as api:
            (lag,) = api.post(
                f"/event-types/{self.event_type}/cursors-lag", json=[{"partition": "0", "offset": "BEGIN"}]
            ).json()
        return int(lag["unconsumed_events"])


def letters_of(broker: RunningServer, name: str) -> Letters:
    """A new event type, and a subscription that keeps dead letters."""
    definition = {
        "name": name,
        "owning_application": "shop",
        "category": "undefined",
        "schema": {"type": "json_schema", "schema": "{}"},
    }
    wanted = {
        "owning_application": name,
        "event_types": [name],
        "read_from": "begin",
        "annotations": dead_letters.KEEPING,
    }
    with broker.client() as api:
        api.post("/event-types", json=definition).raise_for_status()
        return Letters(broker, name, api.post("/subscriptions", json=wanted).json()["id"])
