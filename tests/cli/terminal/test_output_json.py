"""The output of `--json` is pinned: each command of a list runs on a new broker, in this order."""

import json
import re
import shlex
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from rioni import __version__
from rioni.client import Client, EventType, JobReport, Schema, Storage, Subscription, metadata
from tests.support.dead_letters import dead_letter
from tests.support.server import running_server
from tests.support.snapshots import differences
from tests.support.waiting import WAIT_S


SCHEMA = {"type": "object", "properties": {"order": {"type": "string"}}}
COMMANDS = {
    "storages-create": "storages create second --type embedded",
    "storages-list": "storages list",
    "storages-show": "storages show default",
    "storages-set-default": "storages set-default default",
    "schemas-check": "schemas check orders wider.json",
    "schemas-check-fails": "schemas check orders narrower.json",
    "schemas-add": "schemas add orders wider.json",
    "schemas-find": "schemas find orders wider.json",
    "schemas-list": "schemas list orders",
    "schemas-show": "schemas show orders 1.0.0",
    "timelines-create": "timelines create orders second",
    "timelines-list": "timelines list orders",
    "partitions-list": "partitions list orders --after 0:BEGIN",
    "partitions-show": "partitions show orders 0",
    "partitions-distance": "partitions distance orders 0 001-0001--1 001-0001-000000000000000001",
    "partitions-shift": "partitions shift orders --by -1 0:001-0001-000000000000000001",
    "partitions-lag": "partitions lag orders 0:BEGIN",
    "partitions-set-count": "partitions set-count orders 2 --yes",
    "registry-partition-strategies": "registry partition-strategies",
    "registry-enrichment-strategies": "registry enrichment-strategies",
    "settings-admins": "settings admins",
    "settings-set-admins": "settings set-admins --admin user:jane --yes",
    "settings-rights": "settings rights --event-type orders --subscription {subscription}",
    "settings-block": "settings block PRODUCER_APP shop",
    "settings-blacklist": "settings blacklist",
    "settings-unblock": "settings unblock PRODUCER_APP shop",
    "settings-features": "settings features",
    "settings-enable": "settings enable access_log_enabled",
    "settings-disable": "settings disable access_log_enabled",
    "audit-list": "audit list --resource settings:settings --oldest-first --limit 2 --states",
    "audit-denials": "audit denials",
    "log-key": "log key",
    "log-keys": "log keys",
    "log-inclusion": "log inclusion 1 --size 1",
    "log-consistency": "log consistency 1 --second 1",
    "jobs-list": "jobs list",
    "rebuilds-list": "rebuilds list",
    "monitoring-health": "monitoring health",
    "monitoring-live": "monitoring live",
    "monitoring-version": "monitoring version",
    "dead-letters-list": "dead-letters list {subscription}",
    "dead-letters-redrive-dry-run": "dead-letters redrive {subscription} --dry-run",
    "dead-letters-redrive": "dead-letters redrive {subscription}",
    "event-types-list": "event-types list --name order*",
    "event-types-show": "event-types show orders",
    "event-types-create": "event-types create payments --owning-application shop --schema wider.json --label a=b",
    "event-types-producers": "event-types producers orders",
    "event-types-consumers": "event-types consumers orders",
    "event-types-diff": "event-types diff orders --against @1.0.0",
    "event-types-diff-files": "event-types diff definitions.yaml",
    "event-types-check": "event-types check definitions.yaml wrong.yaml",
    "event-types-apply-dry-run": "event-types apply definitions.yaml --dry-run",
    "event-types-apply": "event-types apply definitions.yaml --yes",
    "event-types-apply-schema": "event-types apply --schema",
    "event-types-delete": "event-types delete payments --yes",
    "subscriptions-list": "subscriptions list --owning-application shop --status",
    "subscriptions-show": "subscriptions show {subscription}",
    "subscriptions-create": "subscriptions create --owning-application shop --event-type orders --read-from begin",
    "subscriptions-reset-dry-run": "subscriptions reset {subscription} --to begin --dry-run",
    "subscriptions-reset": "subscriptions reset {subscription} --to begin --yes",
    "subscriptions-cursors": "subscriptions cursors {subscription}",
    "subscriptions-lag": "subscriptions lag {subscription}",
    "subscriptions-lag-by-subscription": "subscriptions lag --by subscription",
    "subscriptions-ended-streams": "subscriptions ended-streams {subscription}",
    "subscriptions-watch": "subscriptions watch --count 1",
    "subscriptions-delete": "subscriptions delete {subscription} --yes",
    "storages-delete": "storages delete unused --yes",
}
FOUND = {
    "schemas-check-fails",
    "event-types-diff",
    "event-types-diff-files",
    "event-types-check",
    "event-types-apply-dry-run",
}
"""The commands that end with exit code 1."""


@pytest.fixture
def new_broker(tmp_path):
    """A new broker, so that there is nothing else to list."""
    with running_server(tmp_path / "data", "--workers", "1") as running:
        yield running


def test_what_json_prints_is_pinned(run, new_broker):
    url = new_broker.url
    assert run("jobs", "list", "--json", "--url", url) == (0, "", ""), "a list without items has no lines"
    assert run("jobs", "list", "--url", url) == (0, "", "None found.\n")
    subscription = _prepare(url)
    wrong = []
    for name, command in COMMANDS.items():
        arguments = shlex.split(command.format(subscription=subscription))
        code, out, err = run(*arguments, "--json", "--url", url)
        assert code == (name in FOUND), err
        assert all(json.loads(line) is not None for line in out.splitlines())
        if name == "audit-list":
            # Entries that the broker records by itself may come before or after.
            out = re.sub(r'"position":\d+', '"position":N', out)
        wrong += differences(name, out, version=__version__ if name == "monitoring-version" else "(none)")
    assert not wrong


def test_nothing_but_json_is_on_stdout_where_a_command_fails(rioni):
    assert rioni("schemas", "show", "absent", "--json")[:2] == (2, "")


def _prepare(url: str) -> str:
    """Make what the commands are about; returns the id of a subscription."""
    Path("wider.json").write_text(json.dumps(SCHEMA | {"properties": SCHEMA["properties"] | {"note": {}}}))
    Path("narrower.json").write_text(json.dumps({"type": "string"}))
    Path("definitions.yaml").write_text(
        "{name: orders, labels: {team: shop}}\n---\n"
        "{name: refunds, owning_application: shop, schema: {schema: {type: object}}}\n---\n"
        "{kind: subscription, owning_application: audit, event_types: [orders]}\n"
    )
    Path("wrong.yaml").write_text("name: orders\nschema_file: narrower.json\ncategory: datta\n")
    with Client(url) as client:
        client.storages.create(Storage(id="unused", storage_type="embedded"))
        client.event_types.create(EventType(name="orders", owning_application="shop", schema=Schema.json(SCHEMA)))
        client.jobs.report(
            str(uuid4()), JobReport(kind="archive", name="lake", state="done", phase="orders", done=5, total=5)
        )
        client.publish("orders", [{"order": str(number), "metadata": metadata()} for number in range(2)])
        wanted = Subscription(owning_application="shop", event_types=["orders"]).with_dead_letters()
        subscription_id = client.subscriptions.create(wanted).id
        with httpx.stream("GET", f"{url}/subscriptions/{subscription_id}/events", timeout=WAIT_S) as stream:
            client.subscriptions.close_stream(subscription_id, stream.headers["X-Nakadi-StreamId"])
            stream.read()
        client.publish("nakadi.dead.letter.queue", [dead_letter(subscription_id, "orders", 1, {"order": "1"})])
        return subscription_id
