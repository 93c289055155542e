"""Changes of settings and storages in the console, without scripts."""

import json
import re
from pathlib import Path
from uuid import uuid4

import pytest

from rioni.console.pages.administration import FEATURES
from tests.console.conftest import READER
from tests.console.markup import forms


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


@pytest.mark.parametrize(
    ("data_type", "value"),
    [
        ("user", "jane"),
        ("user", "jane:joe"),
        ("a:b", "c"),
        ("{", "c"),
        ("user", "jane joe"),
        ("user", " jane"),
        ("user", "jane\nservice:shop"),
        ("user", "jane\r\nservice:shop"),
        ("user", "jane\u2028service:shop"),
        ("user", '"><script>\u202e'),
    ],
)
def test_administrators_of_any_name_stay_as_they_are(visitor, api, data_type, value):
    kept = api.get("/settings/admins").json()
    attribute = {"data_type": data_type, "value": value}
    try:
        api.post("/settings/admins", json=kept | {"readers": [*kept["readers"], attribute]}).raise_for_status()
        before = api.get("/settings/admins").json()
        (form,) = [each for each in visitor.forms("/console/settings") if "admins" in each.actions]
        typed = form.fields | {"writers": f"{form.fields['writers']}\r\nuser:joe", "action": "admins"}
        assert visitor.post("/console/settings", typed).status_code == 303
        after = api.get("/settings/admins").json()
        assert attribute in after["readers"]
        assert after["readers"] == before["readers"]
        assert {"data_type": "user", "value": "joe"} in after["writers"]
    finally:
        api.post("/settings/admins", json=kept).raise_for_status()


@pytest.mark.parametrize(
    "line",
    [
        *("jane", ":jane", "user:", "user:jane user:joe", "{", "{}", "{1:2}"),
        *('{"data_type": "user"}', '{"data_type": "user", "value": 1}', '{"data_type": "a", "value": "b", "c": "d"}'),
        '{"data_type": "user", "value": "jane", "value": "joe"}',
    ],
)
def test_a_line_that_is_no_attribute_is_refused_and_kept(visitor, api, line):
    before = api.get("/settings/admins").json()
    (form,) = [each for each in visitor.forms("/console/settings") if "admins" in each.actions]
    answer = visitor.post("/console/settings", form.fields | {"readers": line, "action": "admins"})
    assert answer.status_code == 422
    assert "is no attribute" in answer.text
    (kept,) = [each for each in forms(answer.text) if "admins" in each.actions]
    assert kept.fields["readers"] == line
    assert api.get("/settings/admins").json() == before


def test_administrators_that_were_changed_meanwhile_are_not_changed_back(visitor, api):
    kept = api.get("/settings/admins").json()
    (form,) = [each for each in visitor.forms("/console/settings") if "admins" in each.actions]
    try:
        other = kept | {"readers": [*kept["readers"], {"data_type": "user", "value": "of-another-tab"}]}
        api.post("/settings/admins", json=other).raise_for_status()
        before = api.get("/settings/admins").json()
        answer = visitor.post("/console/settings", form.fields | {"writers": "user:mine", "action": "admins"})
        assert answer.status_code == 412
        assert "changed meanwhile" in answer.text.lower()
        assert ">user:mine</textarea>" in answer.text
        assert api.get("/settings/admins").json() == before
    finally:
        api.post("/settings/admins", json=kept).raise_for_status()


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
