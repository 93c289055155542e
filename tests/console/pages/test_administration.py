"""Changes of settings and storages in the console, without scripts."""

import json
import re
from pathlib import Path
from uuid import uuid4

import pytest

from rioni.console.pages.administration import FEATURES
from tests.console.conftest import READER


def test_a_feature_is_switched(visitor, api):
    form = {"action": "switch", "feature": "kpi_collection", "enabled": "true"}
    answer = visitor.post("/console/settings", form)
    assert answer.status_code == 303
    assert "kpi_collection is switched on" in visitor.get("/console/settings").text
    features = {each["feature"]: each["enabled"] for each in api.get("/settings/features").json()["items"]}
    assert features["kpi_collection"]
    visitor.post("/console/settings", form | {"enabled": "false"})


def test_what_each_feature_does_is_said(visitor, api):
    features = {each["feature"] for each in api.get("/settings/features").json()["items"]}
    without = {"event_type_deletion_only_admins", "skip_misplaced_events", "dlq_redrive_event_type_attachment_job"}
    assert FEATURES.keys() == features - without
    text = visitor.get("/console/settings").text
    assert all(effect in text for effect in FEATURES.values())
    assert text.count("Does nothing in this broker.") == len(without)


def test_the_reference_says_of_each_feature_what_the_console_says():
    text = (Path(__file__).parents[3] / "docs/reference/settings-and-storages.md").read_text()
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    assert [name for name, effect in FEATURES.items() if f"| `{name}` | {effect.rstrip('.')}" not in text] == []


def test_administrators_are_named_one_a_line(visitor, api):
    kept = api.get("/settings/admins").json()
    lines = "\n".join(f"{each['data_type']}:{each['value']}" for each in kept["admins"])
    form = {"action": "admins", "admins": lines, "readers": "user:jane\nuser:joe", "writers": lines}
    assert visitor.post("/console/settings", form).status_code == 303
    readers = {each["value"] for each in api.get("/settings/admins").json()["readers"]}
    assert {"jane", "joe"} <= readers
    refused = visitor.post("/console/settings", form | {"readers": "jane"})
    assert refused.status_code == 422
    assert "jane is no attribute" in refused.text


def test_an_application_is_blocked_and_unblocked(visitor, api):
    form = {"kind": "CONSUMER_APP", "name": "console-tests"}
    visitor.post("/console/settings", {"action": "block", **form})
    assert "console-tests" in api.get("/settings/blacklist").json()["consumers"]["apps"]
    visitor.post("/console/settings", {"action": "unblock", **form})
    blacklist = api.get("/settings/blacklist").json()
    assert "console-tests" not in blacklist["consumers"]["apps"]
    hint = "-X PUT" in visitor.get("/console/settings").text
    assert hint == (not any(names for lists in blacklist.values() for names in lists.values()))
    assert (
        visitor.post("/console/settings", {"action": "block", "kind": "CONSUMER_APP", "name": " "}).status_code == 422
    )


def test_a_storage_is_added_and_deleted_by_its_name(visitor, api):
    like = api.get("/storages/default").json()
    added = {"id": "console-tests", "storage_type": like["storage_type"]}
    if "kafka_configuration" in like:
        added["kafka_configuration"] = json.dumps(like["kafka_configuration"])
    visitor.post("/console/storages", {"action": "add", **added})
    assert "console-tests" in {each["id"] for each in api.get("/storages").json()}
    delete = {"action": "delete", "id": "console-tests"}
    assert visitor.post("/console/storages", delete | {"name": "something"}).status_code == 422
    visitor.post("/console/storages", delete | {"name": "console-tests"})
    assert "console-tests" not in {each["id"] for each in api.get("/storages").json()}
    without = {"action": "add", "id": "a", "storage_type": "kafka"}
    assert "needs the configuration of Kafka" in visitor.post("/console/storages", without).text
    bad = {"action": "add", "id": "a", "storage_type": "kafka", "kafka_configuration": "{"}
    refused = visitor.post("/console/storages", bad).text
    assert "not JSON" in refused
    assert "<option selected>kafka</option>" in refused


@pytest.mark.parametrize("form", [{"action": "no-such-action"}, {}])
def test_an_unknown_action_is_refused(visitor, form):
    assert visitor.post("/console/settings", form).status_code == 400


def test_what_a_user_may_not_change_is_said_with_its_reason(guest):
    guest.log_in(READER)
    answer = guest.post("/console/settings", {"action": "switch", "feature": "kpi_collection", "enabled": "true"})
    assert answer.status_code == 403
    assert "Forbidden" in answer.text


def test_jobs_are_shown_with_their_progress(visitor, api):
    report = {"kind": "archive", "name": "console-lake", "state": "running", "phase": "orders", "done": 3, "total": 7}
    api.put(f"/jobs/{uuid4()}", json=report).raise_for_status()
    page = visitor.get("/console/jobs").text
    assert '<progress max="7" value="3" aria-label="Progress of the phase orders">' in page
    assert "console-lake" in page
    for command in ("rioni backup --data", "rioni rebuild<"):
        assert command in page
