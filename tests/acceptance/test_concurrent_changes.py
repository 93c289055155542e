"""Concurrent switches, repartitions and deletions of one event type: the contract's sections 11.2 and 12.1."""

import threading
from collections.abc import Callable, Sequence

import httpx
import pytest

from tests.acceptance.conftest import partitions, problem, publish_orders
from tests.support.server import open_stream


pytestmark = pytest.mark.both_modes

ROUNDS_MAX = 100
"""How often simultaneous requests may fail to overlap at most."""


@pytest.fixture
def at_once(server):
    """Sends requests at the same moment, each over its own connection, to each node in turn; returns the answers."""

    def at_once(*requests: Callable[[httpx.Client], httpx.Response]) -> Sequence[httpx.Response]:
        answers: dict[int, httpx.Response] = {}
        together = threading.Barrier(len(requests))

        def send(number, request):
            # Connected before the start.
            with node(number).client() as client:
                client.get("/health")
                together.wait()
                answers[number] = request(client)

        threads = [threading.Thread(target=send, args=each) for each in enumerate(requests)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [answers[number] for number in range(len(requests))]

    def node(number):
        nodes = getattr(server, "nodes", [server])
        return nodes[number % len(nodes)]

    return at_once


def switch(name):
    return lambda client: client.post(f"/event-types/{name}/timelines", json={"storage_id": "default"})


def repartition(name, count):
    return lambda client: client.put(f"/event-types/{name}/partition-count", json={"partition_count": count})


def delete(name):
    return lambda client: client.delete(f"/event-types/{name}")


def orders(client, name):
    return [each["order"] for each in client.get(f"/event-types/{name}/timelines").json()]


def stored(client, name, count):
    """The events of all partitions."""
    numbers = [each["partition"] for each in client.get(f"/event-types/{name}/partitions").json()]
    cursors = ",".join(f'{{"partition":"{number}","offset":"BEGIN"}}' for number in numbers)
    path = f"/event-types/{name}/events?stream_limit={count}&batch_flush_timeout=1"
    with open_stream(client, path, headers={"X-Nakadi-Cursors": f"[{cursors}]"}) as stream:
        return sorted(each["order_id"] for each in stream.events(count))


def test_of_concurrent_switches_one_is_made_and_the_others_are_conflicts(client, create, at_once, name):
    create(name)
    made, refused = 0, 0
    for round_ in range(ROUNDS_MAX):
        answers = at_once(*[switch(name)] * 4)
        assert {answer.status_code for answer in answers} <= {201, 409}
        made += (successes := sum(answer.status_code == 201 for answer in answers))
        assert successes >= 1
        for answer in answers:
            if answer.status_code == 409:
                refused += 1
                problem(answer, 409, f"Timeline is already being created for: {name}")
        assert orders(client, name) == list(range(1, made + 2))
        publish_orders(client, name, f"{round_:02}")
        if refused:
            break
    assert refused, "no two of them ever met"
    assert stored(client, name, round_ + 1) == [f"{each:02}" for each in range(round_ + 1)]


def test_a_concurrent_switch_and_repartition_are_both_made_or_the_latter_must_be_repeated(
    client, create, at_once, name
):
    create(name, **partitions(1))
    met = False
    for count in range(2, 9):
        switched, repartitioned = at_once(switch(name), repartition(name, count))
        assert switched.status_code == 201, switched.text
        if repartitioned.status_code != 204:
            met = True
            problem(repartitioned, 503, f"Event type {name} is currently in maintenance")
            assert repartition(name, count)(client).status_code == 204
        publish_orders(client, name, str(count))
        assert len(client.get(f"/event-types/{name}/partitions").json()) == count
        timelines = client.get(f"/event-types/{name}/timelines").json()
        assert [len(each["latest_position"]["offsets"]) for each in timelines[:-1]] == [count] * (len(timelines) - 1)
        if met:
            break
    assert stored(client, name, count - 1) == [str(each) for each in range(2, count + 1)]


def test_an_event_type_deleted_during_a_switch_is_deleted_and_can_be_created_again(client, create, at_once, name):
    for _ in range(3):
        create(name)
        publish_orders(client, name, "0")
        switched, deleted = at_once(switch(name), delete(name))
        assert deleted.status_code == 200, deleted.text
        if switched.status_code != 201:
            problem(switched, 404, f'EventType "{name}" does not exist')
        problem(client.get(f"/event-types/{name}/timelines"), 404)
    create(name)
    publish_orders(client, name, "1")
    assert switch(name)(client).status_code == 201
    assert stored(client, name, 1) == ["1"]
