"""Every operation of the API can be reached with the client."""

import contextlib
import inspect
import re
from collections.abc import Iterator

import pytest

from rioni.client import (
    Admins,
    Attribute,
    Client,
    ClientError,
    Cursor,
    CursorSpecification,
    EventType,
    FailureReason,
    JobReport,
    NotFound,
    Schema,
    Storage,
    Subscription,
)
from rioni.http.openapi.document import document
from tests.support.scripted_server import Answer, scripted_server


ANY_CURSOR = CursorSpecification(partition="0", offset="BEGIN")
ARGUMENTS = {
    "event_type": EventType(name="n", owning_application="o", schema=Schema.json({})),
    "schema": Schema.json({}),
    "subscription": Subscription(id="i", owning_application="o", event_types=["n"]),
    "cursors": [Cursor(partition="0", offset="BEGIN", event_type="n", cursor_token="t")],
    "failures": [FailureReason(event_type="n", partition="0", offset="1", reason="r")],
    "pairs": [(ANY_CURSOR, ANY_CURSOR)],
    "admins": Admins(admins=[Attribute(data_type="user", value="jane")]),
    "storage": Storage(id="s", storage_type="embedded"),
    "report": JobReport(kind="archive", name="lake", state="running"),
    "count": 2,
    "position": 1,
    "first": 1,
    "enabled": True,
    "rest": "x001/067",
}
NAMESPACES = [
    "event_types", "schemas", "partitions", "timelines", "subscriptions", "settings", "storages", "audit", "log",
    "jobs", "rebuilds", "monitoring",
]  # fmt: skip
ONLY_FOR_OTHERS = {
    # Equal to PUT, for clients that can't send it.
    ("POST", "/event-types/{name}/partition-count"),
}


def _operations() -> Iterator[tuple[str, str]]:
    for template, methods in document()["paths"].items():
        yield from ((method.upper(), template) for method in methods if method != "parameters")


def _reached(requests) -> set[tuple[str, str]]:
    # More literal paths win: /storages/default/{storage_id} before /storages/{storage_id}.
    patterns = [
        (method, template, re.compile(re.sub(r"\{rest\}", ".+", re.sub(r"\{(?!rest)\w+\}", "[^/]+", template)) + "$"))
        for method, template in sorted(_operations(), key=lambda each: each[1].count("{"))
    ]
    found = set()
    for request in requests:
        path = request.path.partition("?")[0]
        found |= {
            next(
                (method, template) for method, template, one in patterns if method == request.method and one.match(path)
            )
        }
    return found


def _called(function):
    """Call a function with something for each argument that it needs, and consume what it returns."""
    parameters = inspect.signature(function).parameters.values()
    needed = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    arguments = {each.name: ARGUMENTS.get(each.name, "n") for each in needed}
    with contextlib.suppress(ClientError):
        found = function(**arguments)
        if inspect.isgenerator(found):
            list(found)


@pytest.mark.slow
def test_every_operation_of_the_api_is_reached():
    with scripted_server() as server, Client(server.url, attempts=1) as client:
        server.script(Answer(200, b"{}"))
        for namespace in (getattr(client, name) for name in NAMESPACES):
            for name, function in inspect.getmembers(namespace, inspect.ismethod):
                if not name.startswith("_"):
                    _called(function)
        with contextlib.suppress(ClientError):
            client.publish("n", [{}])
        with contextlib.suppress(ClientError):
            client.delete_events("n", [{}])
        with contextlib.suppress(ClientError):
            list(client.events("n"))
        reached = _reached(server.requests)
        # A refusal that is final ends a consumer, which opens its streams again otherwise.
        server.script(Answer(403, {}))
        for partitions in ([], [("n", "0")]):
            with contextlib.suppress(ClientError):
                list(client.subscription("i", partitions=partitions))
        reached |= _reached(server.requests)
    assert set(_operations()) - reached - ONLY_FOR_OTHERS == set()


def test_a_broker_that_would_ignore_a_reason_publishes_nothing():
    with scripted_server() as server, Client(server.url, attempts=1) as client:
        server.script(Answer(404, {"title": "Not Found", "status": 404}))
        with pytest.raises(NotFound):
            client.subscriptions.redrive("i", reason="x")
        assert [request.path for request in server.requests] == ["/subscriptions/i/dead-letters/redrive/preview"]
