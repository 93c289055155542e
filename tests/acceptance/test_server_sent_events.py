"""Both stream endpoints as server-sent events."""

import json

import pytest

from tests.acceptance.conftest import partitions, problem, publish_orders
from tests.support.browser import needs_browser


EVENTS = {"Accept": "text/event-stream"}


def read(client, path, headers=EVENTS):
    """All events of a stream up to its end, each with its fields as a browser parses them."""
    with client.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-store"
        text = response.read().decode()
    assert text.endswith("\n\n")
    blocks = [[line.partition(": ") for line in block.split("\n")] for block in text.strip().split("\n\n")]
    return [{name: value for name, _, value in block if name} for block in blocks if any(name for name, *_ in block)]


def batches(events):
    return [json.loads(each["data"]) for each in events if "event" not in each and "data" in each]


def offsets(last_id):
    return {cursor["partition"]: cursor["offset"] for cursor in json.loads(last_id)}


def order_ids(events):
    return [each["order_id"] for batch in batches(events) for each in batch.get("events", [])]


def test_a_browser_continues_behind_the_last_batch_that_it_received(client, create, name):
    """Reference low-level-streams#server-sent-events, low-level-streams#cursors-header."""
    create(name)
    publish_orders(client, name, "1", "2", "3", "4")
    path = f"/event-types/{name}/events?batch_limit=2&batch_flush_timeout=1&stream_limit=2"
    begin = path + '&cursors=[{"partition":"0","offset":"BEGIN"}]'
    seen = read(client, begin)
    assert (seen[0]["retry"], offsets(seen[0]["id"])) == ("1000", {"0": "001-0001--1"})
    assert order_ids(seen) == ["1", "2"]
    assert offsets(seen[-1]["id"]) == {"0": "001-0001-000000000000000001"}
    assert order_ids(read(client, begin, EVENTS | {"Last-Event-ID": seen[-1]["id"]})) == ["3", "4"]


@pytest.mark.parametrize("wanted", [[], ["1"]], ids=["all partitions", "one of them"])
def test_of_an_event_type_that_was_created_again_a_browser_gets_all(client, create, name, wanted):
    """Reference low-level-streams#server-sent-events."""
    asked = json.dumps([{"partition": each, "offset": "BEGIN"} for each in wanted or "01"])
    path = f"/event-types/{name}/events?batch_flush_timeout=1"
    create(name, **partitions(2))
    publish_orders(client, name, *map(str, range(20)))
    seen = read(client, f"{path}&stream_limit=2&cursors={asked}")
    assert client.delete(f"/event-types/{name}").status_code == 200
    create(name, **partitions(2))
    publish_orders(client, name, *(f"new {number}" for number in range(20)))
    again = path + (f"&cursors={asked}" if wanted else "") + "&stream_limit="
    last = EVENTS | {"Last-Event-ID": seen[-1]["id"]}
    count = sum(int(each["newest_available_offset"][-18:]) + 1 for each in partitions_of(client, name, wanted or "01"))
    found = read(client, f"{again}{count}", last)
    assert len(set(order_ids(found))) == count
    assert {cursor["partition"] for batch in batches(found) for cursor in [batch["cursor"]]} == set(wanted or "01")
    # Events of the new one that were seen are not sent again.
    publish_orders(client, name, *(f"newer {number}" for number in range(20)))
    later = read(client, f"{again}2", EVENTS | {"Last-Event-ID": found[-1]["id"]})
    assert {each.split()[0] for each in order_ids(later)} == {"newer"}


def partitions_of(client, name, wanted):
    found = client.get(f"/event-types/{name}/partitions").json()
    return [each for each in found if each["partition"] in wanted]


def test_the_id_names_all_partitions_of_the_stream(client, create, name):
    """Reference low-level-streams#server-sent-events."""
    create(name, **partitions(3))
    path = f"/event-types/{name}/events?batch_flush_timeout=1&stream_limit=1"
    begin = [{"partition": number, "offset": "BEGIN"} for number in "012"]
    publish_orders(client, name, "1")
    first, only = [each for each in read(client, f"{path}&cursors={json.dumps(begin)}") if "id" in each]
    assert set(offsets(first["id"]).values()) == {"001-0001--1"}
    cursors = offsets(only["id"])
    assert sorted(cursors.values()) == ["001-0001--1", "001-0001--1", "001-0001-000000000000000000"]
    assert cursors.keys() == {"0", "1", "2"}


def test_a_reconnecting_browser_commits_the_batches_that_it_received(client, create, name, subscribe):
    """Reference streams#server-sent-events, streams#reconnecting."""
    create(name)
    publish_orders(client, name, "1", "2", "3")
    subscription = subscribe(name, read_from="begin")
    path = f"/subscriptions/{subscription}/events?batch_limit=2&batch_flush_timeout=1&commit_timeout=1"
    seen = read(client, f"{path}&max_uncommitted_events=2&stream_timeout=1")
    assert order_ids(seen) == ["1", "2"]
    (information,) = [each for each in seen if each.get("event") == "stream"]
    assert json.loads(information["data"]).keys() == {"stream_id"}
    last = [each["id"] for each in seen if "id" in each][-1]
    again = EVENTS | {"Last-Event-ID": last}
    assert order_ids(read(client, f"{path}&max_uncommitted_events=2&stream_timeout=1", again)) == ["3"]
    (cursor,) = client.get(f"/subscriptions/{subscription}/cursors").json()["items"]
    assert cursor["offset"] == "001-0001-000000000000000001"


def test_what_a_browser_saw_before_a_restore_to_an_earlier_state_is_not_committed(client, create, name, subscribe):
    """Reference streams#reconnecting: other events come in their place."""
    create(name)
    publish_orders(client, name, "1", "2")
    subscription = subscribe(name, read_from="begin")
    path = f"/subscriptions/{subscription}/events?batch_flush_timeout=1&commit_timeout=1"
    last = [each["id"] for each in read(client, f"{path}&batch_limit=2&stream_limit=2") if "id" in each][-1]
    ahead = EVENTS | {"Last-Event-ID": last.replace("000000000000000001", "000000000000000007")}
    assert ahead["Last-Event-ID"] != last
    assert order_ids(read(client, f"{path}&batch_limit=2&stream_limit=2", ahead)) == ["1", "2"]
    publish_orders(client, name, "3")
    assert order_ids(read(client, f"{path}&batch_limit=1&stream_limit=1", EVENTS | {"Last-Event-ID": last})) == ["3"]


def test_a_script_commits_with_the_stream_id_from_the_stream(client, server, create, name, subscribe):
    create(name)
    publish_orders(client, name, "1")
    path = f"/subscriptions/{subscribe(name, read_from='begin')}"
    with client.stream("GET", f"{path}/events?batch_flush_timeout=1&stream_limit=1", headers=EVENTS) as response:
        lines = response.iter_lines()
        information = json.loads(next(line for line in lines if line.startswith("data:"))[5:])
        batch = json.loads(next(line for line in lines if line.startswith("data:"))[5:])
        with server.client() as other:
            headers = {"X-Nakadi-StreamId": information["stream_id"]}
            assert other.post(f"{path}/cursors", json={"items": [batch["cursor"]]}, headers=headers).status_code == 204
        assert any("Stream limit" in line for line in lines)


def test_keep_alives_are_comments_with_an_id(client, create, name):
    """Reference streams#server-sent-events."""
    create(name)
    path = f"/event-types/{name}/events?batch_flush_timeout=1&stream_keep_alive_limit=2"
    with client.stream("GET", path, headers=EVENTS) as response:
        text = response.read().decode()
    assert text.count(': keep-alive\nid: [{"partition":"0","offset":"001-0001--1",') == 2


@pytest.mark.parametrize("last", ["x", "1", '["x"]', "{}", '[{"partition":"0"}]', '[{"partition":0,"offset":1}]'])
def test_an_invalid_last_event_id_is_rejected(client, create, name, subscribe, last):
    """Reference streams#reconnecting."""
    create(name)
    headers = EVENTS | {"Last-Event-ID": last}
    assert problem(client.get(f"/subscriptions/{subscribe(name)}/events?stream_timeout=1", headers=headers), 400)
    assert client.get(f"/event-types/{name}/events?stream_timeout=1", headers=headers).status_code in (400, 412)


def test_without_the_media_type_of_events_a_stream_sends_lines(client, create, name):
    create(name)
    publish_orders(client, name, "1")
    path = f"/event-types/{name}/events?stream_limit=1&cursors=" + '[{"partition":"0","offset":"BEGIN"}]'
    with client.stream("GET", path, headers={"Accept": "application/x-json-stream, */*"}) as response:
        assert response.headers["content-type"] == "application/x-json-stream"
        assert json.loads(response.read())["events"]


# Commits received batches with the values from the stream, closes after N events, and returns their numbers.
CONSUME = """([path, count]) => new Promise((resolve, reject) => {
  const seen = [], source = new EventSource(path + "/events?batch_flush_timeout=1&batch_limit=2");
  let streamId;
  source.addEventListener("stream", message => { streamId = JSON.parse(message.data).stream_id; });
  source.onmessage = async message => {
    const batch = JSON.parse(message.data);
    if (!batch.events) return;
    seen.push(...batch.events.map(event => event.order_id));
    await fetch(path + "/cursors", {
      method: "POST",
      headers: {"Content-Type": "application/json", "X-Nakadi-StreamId": streamId},
      body: JSON.stringify({items: [batch.cursor]}),
    });
    if (seen.length >= count) { source.close(); resolve(seen); }
  };
  source.onerror = () => reject(new Error("the stream broke"));
})"""


@needs_browser
def test_a_browser_consumes_and_commits(client, server, create, name, subscribe, browser):
    create(name)
    publish_orders(client, name, "1", "2", "3", "4", "5")
    path = f"/subscriptions/{subscribe(name, read_from='begin')}"
    page = browser.new_page()
    page.goto(f"{server.url}/health")
    assert page.evaluate(CONSUME, [path, 5]) == ["1", "2", "3", "4", "5"]
    page.close()
    (item,) = client.get(f"{path}/stats").json()["items"]
    assert [partition["unconsumed_events"] for partition in item["partitions"]] == [0]
