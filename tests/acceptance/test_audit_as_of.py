"""`?as_of=` at any position answers what was answered then, for arbitrary histories (reference audit#past-states)."""

import uuid

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.acceptance.conftest import json_schema
from tests.support.builders import event_type_body


STEPS = st.sampled_from(["create", "widen", "change", "delete", "subscribe", "label", "unsubscribe", "block", "allow"])


class Client:
    """A client with one event type, one subscription and one entry of the blacklist, that come and go."""

    def __init__(self, http) -> None:
        self.http, self.name = http, f"past-{uuid.uuid4().hex[:10]}"
        self.subscription = ""

    def do(self, step: str, number: int) -> None:
        """Try a change; what can't be done now is refused, and changes nothing."""
        name, http = self.name, self.http
        spec = {"owning_application": name, "event_types": [name]}
        if step == "create":
            http.post("/event-types", json=event_type_body(name=name, owning_application=name))
        elif step == "widen":
            more = {f"note{number}": {"type": "string"}, "order_id": {"type": "string"}}
            http.post(f"/event-types/{name}/schemas", json=json_schema(properties=more, required=["order_id"]))
        elif step == "change":
            body = event_type_body(name=name, owning_application=name, options={"retention_time": 86_400_000 + number})
            http.put(f"/event-types/{name}", json=body)
        elif step == "delete":
            http.delete(f"/event-types/{name}")
        elif step == "subscribe":
            answer = http.post("/subscriptions", json=spec)
            self.subscription = answer.json().get("id", "") or self.subscription
        elif step == "label":
            http.put(f"/subscriptions/{self.subscription or 'none'}", json=spec | {"labels": {"n": str(number)}})
        elif step == "unsubscribe":
            http.delete(f"/subscriptions/{self.subscription or 'none'}")
        else:
            http.request("PUT" if step == "block" else "DELETE", f"/settings/blacklist/CONSUMER_APP/{name}")

    def position(self) -> int:
        """The end of the log."""
        return int(self.http.get("/audit?limit=1").headers["Log-Position"])

    def seen(self, position: int | None = None) -> dict[str, tuple[int, object]]:
        """Status and body of all routes that know `as_of`; without it, or with a position."""
        name = self.name
        paths = [
            f"/event-types/{name}",
            f"/event-types?owning_application={name}",
            f"/event-types/{name}/schemas",
            f"/event-types/{name}/schemas/latest",
            f"/event-types/{name}/timelines",
            f"/subscriptions?owning_application={name}",
            f"/subscriptions/{self.subscription or uuid.UUID(int=0)}",
            "/storages",
            "/storages/default",
            "/settings/admins",
            "/settings/blacklist",
            "/settings/features",
        ]
        found = {}
        for path in paths:
            answer = self.http.get(path, params=None if position is None else self._with(path, position))
            if position is not None and answer.status_code == 200:
                assert answer.headers["Log-Position"] == str(position)
            body = answer.json() if answer.status_code == 200 else None
            if isinstance(body, dict):
                body.pop("_links", None)  # they repeat the query
            found[path.partition("/none")[0]] = answer.status_code, body
        return found

    def _with(self, path: str, position: int) -> dict[str, str]:
        query = path.partition("?")[2]
        return {"as_of": str(position)} | (dict([query.split("=")]) if query else {})


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=4, max_size=9))
def test_the_past_is_answered_as_it_was_answered_then(client, steps):
    """Reference audit#past-states."""
    known = Client(client)
    were = {}
    for number, step in enumerate(["create", "subscribe", *steps]):
        known.do(step, number)
        position = known.position()
        were[position] = known.subscription, known.seen()
    for position, (subscription, answers) in were.items():
        known.subscription = subscription
        assert known.seen(position) == answers, (position, steps)
