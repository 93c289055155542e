"""Sample data of each kind that pages can show, with hostile texts wherever the API takes any text."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from uuid import uuid4

from rioni.console.app import PAGES
from rioni.console.pages import event_type, subscriptions
from tests.support import dead_letters
from tests.support.server import RunningServer, open_stream
from tests.support.tokens import bearer


HOSTILE = """<img src=x onerror="window.ran=1"><script>window.ran=1</script>'"`{{7*7}}${7*7}<svg onload=window.ran=1>"""
NAME, STORAGE, LABEL = "console.hostile", "console-sample", {"team": "orders"}
ADDRESSES = (
    *(page.path for page in PAGES),
    *(f"/event-types/{{name}}?tab={tab}" for tab in event_type.TABS),
    "/event-types/{name}?tab=schema&against=1.0.0",
    *(f"/subscriptions/{{id}}?tab={tab.replace(' ', '+')}" for tab in subscriptions.TABS),
)
"""Each page and each of its tabs; `sample` says what the braces stand for."""
_TRIES = 10


@contextlib.contextmanager
def sample(
    broker: RunningServer, *, token: str | None = None, sections: Sequence[Mapping[str, object]] = ({}, {})
) -> Iterator[dict[str, str]]:
    """Fill a broker, and keep a stream open; yields what the braces in `ADDRESSES` stand for.

    Args:
        broker: an empty one.
        token: of its administrator, if it asks for tokens.
        sections: members of the event type and of the subscription, such as `authorization`.
    """
    of_event_type, of_subscription = sections
    with broker.client(headers={"User-Agent": HOSTILE.encode(), **bearer(token)}) as api:
        api.post("/event-types", json={**_definition(), **of_event_type}).raise_for_status()
        added = {"type": "json_schema", "schema": json.dumps({"properties": {"text": {}, HOSTILE: {"title": HOSTILE}}})}
        api.post(f"/event-types/{NAME}/schemas", json=added).raise_for_status()
        api.post(f"/event-types/{NAME}/events", json=[{"text": HOSTILE, HOSTILE: HOSTILE}]).raise_for_status()
        # The type is one that the broker can use.
        like = {name: value for name, value in api.get("/storages/default").json().items() if name != "default"}
        api.post("/storages", json=like | {"id": STORAGE}).raise_for_status()
        job = {"kind": "archive", "name": HOSTILE, "state": "running", "phase": HOSTILE, "done": 3, "detail": HOSTILE}
        api.put(f"/jobs/{uuid4()}", json=job).raise_for_status()
        for kind in ("CONSUMER_APP", "PRODUCER_ET"):
            api.put(f"/settings/blacklist/{kind}/{NAME}-blocked").raise_for_status()
        wanted = {
            "owning_application": HOSTILE,
            "consumer_group": HOSTILE,
            "event_types": [NAME],
            "read_from": "begin",
            "annotations": {"note": HOSTILE, **dead_letters.KEEPING},
            "labels": LABEL,
            **of_subscription,
        }
        subscription = api.post("/subscriptions", json=wanted).json()["id"]
        keep_a_dead_letter(broker, f"/subscriptions/{subscription}", bearer(token))
        changed = api.get("/audit", params={"resource": f"event-type:{NAME}"}).json()["items"][0]
        with broker.client(headers=bearer(token)) as other, open_stream(other, f"/subscriptions/{subscription}/events"):
            yield {"name": NAME, "id": subscription, "position": str(changed["position"])}


def _definition() -> dict[str, object]:
    return {
        "name": NAME,
        "owning_application": HOSTILE,
        "category": "undefined",
        "compatibility_mode": "none",
        "labels": LABEL,
        "annotations": {"note": HOSTILE},
        "schema": {"type": "json_schema", "schema": "{}"},
    }


def keep_a_dead_letter(broker: RunningServer, path: str, headers: Mapping[str, str]) -> None:
    """Read without committing, until the event is kept as a dead letter."""
    for _ in range(_TRIES):
        with (
            broker.client(headers=headers) as api,
            open_stream(api, f"{path}/events?batch_flush_timeout=1&commit_timeout=1") as stream,
        ):
            for batch in stream.batches_as_they_come():
                if not batch.get("events") and _has_dead_letters(broker, path, headers):
                    return
    raise AssertionError("the event was not kept")


def _has_dead_letters(broker: RunningServer, path: str, headers: Mapping[str, str]) -> bool:
    with broker.client(headers=headers) as api:
        return bool(api.get(f"{path}/dead-letters").json()["items"])
