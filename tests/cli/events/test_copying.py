import contextlib
import json
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path

import pytest

from rioni.cli.events.across_partitions import entries
from rioni.cli.events.copy_state import state_file
from rioni.cli.events.copying import Copy, Stopped, Transformation, check_identities, growth, new_state, target_of
from rioni.cli.events.selecting import Selection, between, ends, starts
from rioni.cli.publishing.publishing import BatchPublisher
from rioni.client import ConnectionFailed, Schema, metadata
from rioni.client.ranges import RangeError, Reader
from rioni.domain.errors import Invalid


class Crashed(BaseException):
    """The process would end here."""


@pytest.fixture
def copying(client, tmp_path):
    """Copies one event type to another one; returns the state and what was refused."""

    def run(
        source, target, *, state=None, send=None, wanted=lambda _: True, batch=10, stop=True, keep=True, **selection
    ):
        found, to = client.event_types.get(source), client.event_types.get(target)
        refused = []
        send = send or (lambda events, key: client.publish(target, events, idempotency_key=key))
        with state_file(state, new_state(found, to, client, {})) as kept:
            work = Copy(
                reader=Reader(client, source, batch_events=batch),
                wanted=wanted,
                transform=Transformation(kept.state.id, to, keep),
                publisher=BatchPublisher(send, repeats=True, stop=stop),
                state=kept,
                batch=batch,
                stop=stop,
                refused=refused.append,
                check=lambda: check_identities(kept.state, client, client),
            )
            with contextlib.suppress(Stopped):
                work.run(Selection(**selection), follow="until" in selection)
        return kept.state, refused

    return run


@pytest.fixture
def read(client):
    """The events of an event type, by partition."""

    def run(name):
        reader = Reader(client, name)
        bounds = reader.locator.bounds()
        places = starts(reader.locator, bounds, Selection(), from_end=False)
        found = {name: [] for name in bounds}
        for part in between(reader.locator, places, ends(reader.locator, bounds, Selection())):
            found[part.partition] = [json.loads(bytes(each.event)) for each in entries(reader.read(part))]
        return found

    return run


def _numbers(found):
    return {partition: [event["number"] for event in events] for partition, events in found.items()}


def _publish(client, name, numbers):
    client.publish(name, [{"key": f"key-{number % 7}", "number": number} for number in numbers])


def test_a_copy_has_the_same_events_in_the_same_order(client, event_type, copying, read):
    source, target = event_type(3), event_type(3)
    _publish(client, source, range(100))
    state, _ = copying(source, target)
    assert _numbers(read(target)) == _numbers(read(source))
    assert growth(client, state) == sum(each.stored for each in state.partitions.values()) == 100


@pytest.mark.parametrize("keep", [True, False])
def test_ids_and_times_are_kept_or_new(client, event_type, copying, read, keep):
    source, target = event_type(), event_type()
    _publish(client, source, range(3))
    copying(source, target, keep=keep)
    before, after = ([event["metadata"] for event in read(name)["0"]] for name in (source, target))
    assert ([each["eid"] for each in before] == [each["eid"] for each in after]) == keep
    assert ([each["occurred_at"] for each in before] == [each["occurred_at"] for each in after]) == keep
    assert [each["flow_id"] for each in before] == [each["flow_id"] for each in after]
    assert {each["event_type"] for each in after} == {target}
    assert len({each["eid"] for each in after}) == 3


def test_events_are_copied_between_categories(client, event_type, copying, read):
    business, undefined = event_type(), event_type(category="undefined", enrichment_strategies=[])
    client.publish(undefined, [{"key": "a", "number": 1}])
    copying(undefined, business)
    (event,) = read(business)["0"]
    assert event["metadata"].keys() >= {"eid", "occurred_at"}
    other = event_type(category="undefined", enrichment_strategies=[])
    copying(business, other)
    assert read(other)["0"] == [event]


def test_keys_of_compacted_event_types_are_left_out_where_the_target_has_none(client, event_type, copying, read):
    source, target = event_type(cleanup_policy="compact"), event_type()
    client.publish(source, [{"key": "a", "number": 1, "metadata": metadata(partition_compaction_key="a")}])
    copying(source, target)
    assert "partition_compaction_key" not in read(target)["0"][0]["metadata"]


def test_only_what_is_wanted_is_copied_and_counted(client, event_type, copying, read):
    source, target = event_type(2), event_type(2)
    _publish(client, source, range(30))
    state, _ = copying(source, target, wanted=lambda event: json.loads(bytes(event))["number"] < 10)
    assert sorted(chain(*_numbers(read(target)).values())) == list(range(10))
    assert sum(each.read for each in state.partitions.values()) == 30


def test_a_copy_up_to_a_time_waits_for_it(client, event_type, copying, read):
    source, target = event_type(), event_type()
    _publish(client, source, [1])
    until = datetime.now(UTC) + timedelta(seconds=1)
    copying(source, target, until=until)
    assert datetime.now(UTC) >= until
    assert _numbers(read(target)) == {"0": [1]}


def test_a_copy_goes_on_where_it_was_and_a_batch_that_was_being_published_is_not_stored_twice(
    client, event_type, copying, read, tmp_path
):
    source, target = event_type(), event_type()
    state = tmp_path / "state"
    _publish(client, source, range(25))
    for crash in range(4):
        sent = []

        def send(events, key, *, crash=crash, sent=sent):
            if len(sent) == crash // 2:
                # Before the request, or when it is done.
                if crash % 2:
                    client.publish(target, events, idempotency_key=key)
                raise Crashed
            sent.append(key)
            client.publish(target, events, idempotency_key=key)

        with pytest.raises(Crashed):
            copying(source, target, state=state, send=send)
    _publish(client, source, range(25, 30))
    copying(source, target, state=state)
    assert _numbers(read(target)) == {"0": list(range(30))}
    kept, _ = copying(source, target, state=state)
    assert (kept.partitions["0"].read, growth(client, kept)) == (30, 30)


def test_new_ids_stay_the_same_when_a_batch_is_repeated(client, event_type, copying, read, tmp_path):
    source, target = event_type(), event_type()
    _publish(client, source, range(5))

    def send(events, key):
        client.publish(target, events, idempotency_key=key)
        raise Crashed

    with pytest.raises(Crashed):
        copying(source, target, state=tmp_path / "state", send=send, keep=False)
    copying(source, target, state=tmp_path / "state", keep=False)
    assert _numbers(read(target)) == {"0": list(range(5))}


def test_a_refused_event_stops_the_copy_until_it_is_to_go_on_without_it(client, event_type, copying, read, tmp_path):
    source = event_type(2)
    numbers = {"enum": [number for number in range(30) if number not in (5, 17)]}
    target = event_type(2, schema=Schema.json({"properties": {"key": {"type": "string"}, "number": numbers}}))
    _publish(client, source, range(30))
    state = tmp_path / "state"
    _, refused = copying(source, target, state=state)
    assert refused
    assert json.loads(refused[0].event)["number"] in (5, 17)
    kept, refused = copying(source, target, state=state, stop=False)
    assert sorted(json.loads(each.event)["number"] for each in refused) == [5, 17]
    expected = {name: [n for n in numbers if n not in (5, 17)] for name, numbers in _numbers(read(source)).items()}
    assert _numbers(read(target)) == expected
    assert growth(client, kept) == 28


def test_partitions_that_were_added_are_copied_from_their_beginning(client, event_type, copying, read, tmp_path):
    source, target = event_type(), event_type(2)
    _publish(client, source, range(5))
    copying(source, target, state=tmp_path / "state")
    client.partitions.set_count(source, 2)
    _publish(client, source, range(5, 20))
    until = datetime.now(UTC) + timedelta(seconds=1)
    copying(source, target, state=tmp_path / "state", until=until)
    assert sorted(chain(*_numbers(read(target)).values())) == list(range(20))


def test_a_broker_that_does_not_answer_ends_the_copy_with_an_error(client, event_type, copying):
    def send(events, key):
        raise ConnectionFailed("no answer")

    source = event_type()
    _publish(client, source, [1])
    with pytest.raises(ConnectionFailed):
        copying(source, event_type(), send=send)


def test_a_state_fits_one_copy_only(client, event_type, tmp_path):
    source, target, other = (client.event_types.get(event_type()) for _ in range(3))
    path = tmp_path / "state"

    def used(first=source, second=target, options=None):
        with state_file(path, new_state(first, second, client, options or {})) as kept:
            kept.save()
            return kept.state.id

    assert used() == used()
    with pytest.raises(Invalid, match=f"copy from {source.name} to {target.name}"):
        used(second=other)
    with pytest.raises(Invalid, match="with other options"):
        used(options={"filter": "true"})
    with (
        state_file(path, new_state(source, target, client, {})),
        pytest.raises(Invalid, match="another process copies with it"),
    ):
        used()
    path.write_text("{}")
    with pytest.raises(Invalid, match="not the state of a copy"):
        used()
    with (
        pytest.raises(Invalid, match="can't be written"),
        state_file(Path("absent/state"), new_state(source, target, client, {})),
    ):
        pass


@pytest.mark.parametrize("which", ["source", "target"])
def test_an_event_type_that_is_created_again_while_it_is_copied_ends_the_copy(client, event_type, copying, which):
    names = {"source": event_type(), "target": event_type()}
    _publish(client, names["source"], range(100))

    def send(events, key):
        client.publish(names["target"], events, idempotency_key=key)
        found = client.event_types.get(names[which])
        client.event_types.delete(names[which])
        client.event_types.create(found)
        if which == "source":
            _publish(client, names["source"], range(200, 300))

    with pytest.raises(Invalid, match=f"{names[which]} was deleted and created again"):
        copying(names["source"], names["target"], send=send, batch=50)


def test_a_copy_that_is_ahead_of_its_source_is_refused(client, event_type, copying, tmp_path):
    """This is the state after the source's broker was restored from an older backup."""
    source, target, path = event_type(), event_type(), tmp_path / "state"
    _publish(client, source, range(5))
    copying(source, target, state=path)
    path.write_text(path.read_text().replace("000000000000000004", "000000000000000007"))
    with pytest.raises(Invalid, match="restored from a backup"):
        copying(source, target, state=path)


def test_a_target_is_made_like_its_source(client, event_type):
    source = client.event_types.get(event_type(2, labels={"team": "orders"}))
    client.partitions.set_count(source.name, 4)
    name = f"{source.name}-copy"
    with pytest.raises(Invalid, match="--create makes one like"):
        target_of(client, name, client, source, Selection(), create=False)
    for wrong in (Selection(partitions=("7",)), Selection(partitions=("0",), from_offset="999")):
        with pytest.raises((Invalid, RangeError), match="partition"):
            target_of(client, name, client, source, wrong, create=True)
    made, is_new = target_of(client, name, client, source, Selection(), create=True)
    assert is_new
    assert (made.labels, made.partition_strategy, len(client.partitions.list(name))) == ({"team": "orders"}, "hash", 4)
    assert target_of(client, name, client, source, Selection(), create=True)[1] is False
    with pytest.raises(Invalid, match="the same event type"):
        target_of(client, source.name, client, source, Selection(), create=False)
