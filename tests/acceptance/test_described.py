"""Every answer, to valid and invalid requests, conforms to the description of the API (with Schemathesis).

Schemathesis generates the requests, valid and corrupted ones; the client of the tests checks every answer against the
description, so these tests only look for server errors. Streams are closed as soon as they have started.
"""

import functools
import socket
from urllib.parse import urlsplit

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from rioni.domain.system.settings import BLACKLIST_TYPES, FEATURES
from rioni.http.middleware.requests import ANY_MEDIA
from rioni.http.openapi.document import document
from tests.support.builders import event_type_body
from tests.support.conformance import resolved
from tests.support.server import running_server
from tests.support.waiting import WAIT_S


EXAMPLES = 6
EVENT_TYPE = "order.created"
SUBSCRIPTION = {"owning_application": "described", "event_types": [EVENT_TYPE]}
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, methods in document()["paths"].items()
    for method, operation in methods.items()
}


@functools.cache
def generated():
    """A strategy for each operation, which makes requests to it."""
    import schemathesis  # noqa: PLC0415 - takes long, and every worker that runs tests imports this file

    operations = (each.ok() for each in schemathesis.openapi.from_dict(document()).get_all_operations())
    return {
        operation.label: st.one_of(
            *(operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode)
        )
        for operation in operations
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A separate server, since these tests switch features and delete storages."""
    environment = {"RIONI_COMMIT_TIMEOUT_MAX_S": "1"}
    with running_server(
        tmp_path_factory.mktemp("data") / "rioni", "--workers", "1", environment=environment
    ) as running:
        yield running


@pytest.fixture
def existing(client, label):
    """Parameters of paths that name existing resources; settings that the operation changes are restored afterwards."""
    client.post("/event-types", json=event_type_body(name=EVENT_TYPE))
    subscription = client.post("/subscriptions", json=SUBSCRIPTION).json()
    yield {"name": EVENT_TYPE, "subscription_id": subscription["id"], "partition": "0", "version": "latest"}
    if "/settings/" in label:
        for feature in FEATURES:
            client.post("/settings/features", json={"feature": feature, "enabled": False})
        for blacklist_type in BLACKLIST_TYPES:
            client.delete(f"/settings/blacklist/{blacklist_type}/{EVENT_TYPE}")


@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_is_described(client, existing, label):
    @seed(0)
    @settings(max_examples=EXAMPLES)
    @given(case=generated()[label], known=st.booleans())
    def answered(case, known):
        if known:
            case.path_parameters = {name: existing.get(name, value) for name, value in case.path_parameters.items()}
        # Most bodies are plain; compressed ones are tested elsewhere.
        case.headers.pop("Content-Encoding", None)
        request = case.as_transport_kwargs(base_url=str(client.base_url))
        if isinstance(request.get("data"), bytes):
            request["content"] = request.pop("data")
        with client.stream(**request) as response:
            assert response.status_code < 500 or response.status_code in (501, 503)

    answered()


@pytest.mark.parametrize("label", OPERATIONS)
def test_the_example_of_every_operation_is_accepted(client, existing, label):
    operation = OPERATIONS[label]
    given = {"path": {}, "query": {}, "header": {}}
    for parameter in map(resolved, operation["parameters"]):
        if "example" in parameter:
            given[parameter["in"]][parameter["name"]] = parameter["example"]
    method, path = label.split()
    path = path.format(**given["path"] | {"subscription_id": existing["subscription_id"]})
    request = {"params": given["query"], "headers": given["header"]}
    if "requestBody" in operation:
        request["json"] = operation["requestBody"]["content"]["application/json"]["example"]
    with client.stream(method, path, **request) as response:
        assert response.status_code not in (400, 406, 415)
        # 501 is a feature that is switched off.
        assert response.status_code < 500 or response.status_code == 501


def status_of(client, label, existing, **headers):
    """The status of the answer to a request to an operation with some headers, and no body."""
    method, path = label.split()
    placeholders = {each["name"]: each.get("example") for each in described_parameters(label) if each["in"] == "path"}
    address = urlsplit(str(client.base_url))
    with socket.create_connection((address.hostname, address.port), timeout=WAIT_S) as connection:
        lines = [
            f"{method} {path.format(**placeholders | existing)} HTTP/1.1",
            "Host: localhost",
            "Connection: close",
        ]
        lines += [
            f"{each['name']}: {each['example']}"
            for each in described_parameters(label)
            if each["in"] == "header" and each.get("required")
        ]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        return int(connection.recv(65_536).split()[1])


def described_parameters(label):
    return map(resolved, OPERATIONS[label]["parameters"])


@pytest.mark.parametrize("label", OPERATIONS)
def test_general_errors_are_described_exactly_where_they_occur(client, existing, label):
    """406, 408, 413, 415: every operation that reads a body may time out."""
    described = {int(status) for status in OPERATIONS[label]["responses"]}
    occurring = {
        status_of(client, label, existing, Accept="image/png", Content_Encoding="gzip"),
        status_of(client, label, existing, Content_Type="text/plain"),
        status_of(client, label, existing, Content_Length=10**10),
    }
    common = {406, 413, 415}
    method, path = label.split()
    if path in ANY_MEDIA and method == "POST":
        # The form of batches and streams does not depend on Accept; the description is simpler than that.
        common = {413, 415}
    assert occurring & common == described & common
    assert (408 in described) == (413 in described)
