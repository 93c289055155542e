"""`rioni publish` and `rioni events delete`: the events stored, and the messages about the others."""

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from rioni.client import EventType, Schema, Statistic
from rioni.client._sync.event_types import Partitions
from rioni.client.errors import problem
from tests.support.campaigns import length
from tests.support.waiting import WAIT_S


SCHEMA = {
    "properties": {
        "order": {"properties": {"id": {"type": "string"}, "total": {"type": "number"}}},
        "paid": {"type": ["boolean", "null"]},
    },
    "required": ["order"],
}


@pytest.fixture
def orders(client, name):
    """An event type for orders."""
    return _create(client, name)


def _create(client, name, partitions=1, **members):
    statistic = Statistic(
        messages_per_minute=1, message_size=1, read_parallelism=partitions, write_parallelism=partitions
    )
    defaults = {"owning_application": "shop", "schema": Schema.json(SCHEMA), "default_statistic": statistic}
    client.event_types.create(EventType(name=name, **{**defaults, **members}))
    return name


@pytest.fixture
def stored(rioni):
    """The events of an event type, without metadata."""
    return lambda name, *options: [
        json.loads(line) for line in rioni("tail", name, "--no-follow", "--no-metadata", *options)[1].splitlines()
    ]


def _order(key, **members):
    return {"order": {"id": key}, **members}


def _lines(*events):
    return "".join(json.dumps(event) + "\n" for event in events)


def test_events_from_standard_input_are_stored_in_order(rioni, orders, stored):
    events = [_order(str(number)) for number in range(1_200)]
    code, out, err = rioni("publish", orders, stdin=_lines(*events))
    assert (code, err) == (0, "")
    assert out.startswith(f"1,200 events published to {orders} in ")
    assert stored(orders) == events


def test_files_of_all_formats_are_read_one_after_the_other(rioni, orders, stored):
    Path("a.csv").write_text("order.id,order.total,paid\nA,1.5,true\n")
    Path("b.json").write_text(json.dumps([_order("B")], indent=2))
    Path("c.jsonl.gz").write_bytes(gzip.compress(_lines(_order("C")).encode()))
    Path("d.tsv").write_text("order.id\torder.total\nD\t2\n")
    assert rioni("publish", orders, "a.csv", "b.json", "d.tsv", "-", "c.jsonl.gz", stdin=_lines(_order("E")))[0] == 0
    assert stored(orders) == [
        {"order": {"id": "A", "total": 1.5}, "paid": True},
        _order("B"),
        {"order": {"id": "D", "total": 2}},
        _order("E"),
        _order("C"),
    ]


def test_the_first_event_that_is_refused_is_named_by_line_and_reason(rioni, orders, stored):
    text = _lines(_order("A"), {}, _order("B"))
    code, out, err = rioni("publish", orders, stdin=text)
    assert code == 1
    assert out.startswith(f"1 events published to {orders} in ")
    assert err.startswith("stdin:2: validating: #: required key [order] not found")
    assert stored(orders) == [_order("A")]


def test_refused_events_are_written_to_a_file_and_can_be_mended(rioni, orders, stored, snapshot):
    text = _lines(_order("A"), {"note": 1}, _order("B")) + "nonsense\n" + _lines(_order("C"))
    code, out, err = rioni("publish", orders, "--continue", "--rejected", "rejected.jsonl", "--json", stdin=text)
    assert code == 2
    assert json.loads(out) == {"event_type": orders, "events": 3, "refused": 2}
    assert [line.partition(": ")[0] for line in err.splitlines()] == ["stdin:2", "stdin:4"]
    assert stored(orders) == [_order("A"), _order("B"), _order("C")]
    snapshot("publish-rejected", Path("rejected.jsonl").read_text())


def test_only_some_of_many_refused_events_are_named_on_the_screen(rioni, orders):
    code, _, err = rioni("publish", orders, "--continue", "--rejected", "rejected.jsonl", stdin=_lines(*[{}] * 50))
    assert code == 1
    assert len(err.splitlines()) == 21
    assert "are in the file" in err
    assert len(Path("rejected.jsonl").read_text().splitlines()) == 50
    code, _, err = rioni("publish", orders, "--continue", "--rejected", "/dev/full", stdin=_lines(*[{}] * 50))
    assert (code, err.splitlines()[-1]) == (2, "Error: /dev/full can't be written: No space left on device.")


def test_what_a_stream_delivers_can_be_published_again(rioni, client, orders, name, stored):
    rioni("publish", orders, stdin=_lines(_order("A"), _order("B")))
    other = _create(client, f"{name}-other")
    events = rioni("tail", orders, "--no-follow")[1]
    assert rioni("publish", other, stdin=events)[0] == 0
    ids = [json.loads(line)["metadata"]["eid"] for line in events.splitlines()]
    assert [json.loads(line)["metadata"]["eid"] for line in rioni("tail", other, "--no-follow")[1].splitlines()] == ids


def test_a_repetition_with_once_stores_what_is_missing(rioni, orders, stored):
    events = [_order(str(number)) for number in range(10)]
    arguments = ("publish", orders, "--once", "--batch", "2")
    assert rioni(*arguments, stdin=_lines(*events[:4]))[0] == 0
    for _ in range(2):
        code, out, _ = rioni(*arguments, stdin=_lines(*events))
        assert code == 0
        # The broker does not say which batches it had.
        assert f"10 events published to {orders}, now or by an earlier run, in " in out
    assert stored(orders) == events


@pytest.mark.nightly
def test_what_is_killed_and_repeated_with_once_is_stored_once(broker, client, orders, stored):
    random = Random(length(7, time.time_ns()))
    events = [_order(str(number)) for number in range(2_000)]
    Path("orders.jsonl").write_text(_lines(*events))
    command = [sys.executable, "-m", "rioni", "publish", orders, "orders.jsonl", "--once", "--batch", "10"]
    command += ["--url", broker.url]
    for _ in range(length(2, 50)):
        wanted = _count(client, orders) + random.randrange(10, 300)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as publishing:
            while publishing.poll() is None and _count(client, orders) < wanted:
                pass
            publishing.kill()
    assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0
    assert stored(orders) == events


def _count(client, name):
    (partition,) = client.partitions.list(name)
    return int(partition.newest_available_offset.rpartition("-")[2]) + 1


def test_a_repetition_with_once_knows_the_parts_of_batches_with_refused_events(rioni, orders, stored):
    text = _lines(_order("A"), {}, _order("B"), {}, _order("C"))
    for _ in range(2):
        assert rioni("publish", orders, "--once", "--continue", stdin=text)[0] == 1
    assert stored(orders) == [_order("A"), _order("B"), _order("C")]


def test_a_dry_run_checks_everything_and_publishes_nothing(rioni, client, name, stored):
    orders = _create(client, name, 2, partition_strategy="hash", partition_key_fields=["order.id"])
    text = _lines(_order("A"), {}, {"order": {}}) + '{"order":{"id":"a","id":"b"}}\n{"order":\n'
    code, out, err = rioni("publish", orders, "--dry-run", "--json", stdin=text)
    assert (code, json.loads(out)) == (2, {"event_type": orders, "events": 1, "refused": 4})
    said = [line.split(": ") for line in err.splitlines()]
    assert [(line[0], line[1]) for line in said] == [
        ("stdin:2", "validating"),
        ("stdin:3", "partitioning"),
        ("stdin:4", "reading"),
        ("stdin:5", "reading"),
    ]
    assert "Duplicate key" in err
    assert stored(orders) == []
    # The broker says the same.
    _, _, same = rioni("publish", orders, "--continue", stdin=text)
    assert [line.split(": ")[:2] for line in same.splitlines()] == [line[:2] for line in said]


def test_key_and_partition_become_metadata(rioni, client, name):
    orders = _create(client, name, 2, cleanup_policy="compact", partition_strategy="user_defined")
    assert rioni("publish", orders, "--key", "order.id", "--partition", "1", stdin=_lines(_order("A")))[0] == 0
    (event,) = map(json.loads, rioni("tail", orders, "--no-follow")[1].splitlines())
    assert event["metadata"]["partition_compaction_key"] == "A"
    assert event["metadata"]["partition"] == "1"
    code, _, err = rioni("publish", orders, "--key", "order.id", stdin=_lines({"order": {}}))
    assert code == 1
    assert "it has no key: order.id" in err


def test_who_publishes_to_a_partition_need_not_see_the_partitions(rioni, client, name, monkeypatch):
    def refuse(*_):
        raise problem(403, {"detail": "Access on READ denied"}, request="GET", retry_after_s=None)

    orders = _create(client, name, 2, partition_strategy="user_defined")
    monkeypatch.setattr(Partitions, "list", refuse)
    assert rioni("publish", orders, "--partition", "1", stdin=_lines(_order("A")))[0] == 0
    assert rioni("publish", orders, "--partition", "7", stdin=_lines(_order("A")))[0] == 1


def test_events_of_the_category_undefined_stay_as_they_are(rioni, client, name):
    _create(client, name, category="undefined", enrichment_strategies=[])
    assert rioni("publish", name, stdin='{"order": 1.50}\n')[0] == 0
    assert rioni("tail", name, "--no-follow")[1] == '{"order": 1.50}\n'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.csv"], "absent.csv can't be read"),
        (["--format", "xml"], "'xml' is not one of 'jsonl', 'json', 'csv', 'tsv'."),
        (["--format", "csv", "--types", "a"], "a is not the type of a column"),
        (["--format", "csv", "--rejected", "absent/r.jsonl"], "absent/r.jsonl can't be written"),
    ],
)
def test_what_can_not_be_used_is_an_error_of_one_line(rioni, orders, arguments, message):
    code, out, err = rioni("publish", orders, *arguments, stdin="order.id\n1\n")
    assert (code, out) == (2, "")
    assert message in err.splitlines()[-1]


def test_a_broken_archive_is_an_error(rioni, orders):
    Path("a.jsonl.gz").write_bytes(gzip.compress(_lines(_order("A")).encode())[:-9])
    code, _, err = rioni("publish", orders, "a.jsonl.gz")
    assert code == 2
    assert "a.jsonl.gz can't be read" in err


def test_events_from_a_pipe_are_published_while_it_is_open(broker, orders, stored):
    command = [sys.executable, "-m", "rioni", "publish", orders, "--url", broker.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as publishing:
        os.write(publishing.stdin.fileno(), _lines(_order("A")).encode())
        while stored(orders) != [_order("A")]:
            assert publishing.poll() is None
        publishing.communicate(_lines(_order("B")).encode(), timeout=WAIT_S)
    assert publishing.returncode == 0
    assert stored(orders) == [_order("A"), _order("B")]


def test_a_refused_event_ends_the_command_although_the_pipe_is_open(broker, orders):
    command = [sys.executable, "-m", "rioni", "publish", orders, "--url", broker.url]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as publishing:
        publishing.stdin.write("{}\n")
        publishing.stdin.flush()
        assert publishing.wait(WAIT_S) == 1
        assert publishing.stderr.read().count("\n") == 1


def test_events_are_deleted_by_their_keys(rioni, client, name, snapshot):
    _create(client, name, cleanup_policy="compact", partition_strategy="hash", partition_key_fields=["order.id"])
    code, out, err = rioni("events", "delete", name, "A", "--yes")
    assert code == 1
    assert "key:1: partitioning" in err
    Path("gone.csv").write_text("order.id\nA\nB\n")
    code, out, _ = rioni("events", "delete", name, "--file", "gone.csv", "--key", "order.id", "--yes", "--json")
    assert code == 0
    snapshot("events-delete", out, customers=name)
    (partition,) = client.partitions.list(name)
    assert partition.newest_available_offset.endswith("-000000000000000001")


def test_what_is_deleted_has_to_be_said_and_confirmed(rioni, orders):
    assert "either keys, or --file" in rioni("events", "delete", orders, "--yes")[2]
    assert "use --yes" in rioni("events", "delete", orders, "A", stdin="")[2]
    code, _, err = rioni("events", "delete", orders, "A", "--yes")
    assert code == 2
    assert "not allowed to delete events" in err
