"""The listener with TLS: the API over HTTPS, certificates that change, clients that never finish a handshake."""

import contextlib
import http.client
import json
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import urlsplit

import httpx
import pytest

from tests.acceptance.conftest import event
from tests.support.builders import event_type_body
from tests.support.certificates import authority, replaced
from tests.support.commands import run_command
from tests.support.server import open_stream, refused_start, running_server
from tests.support.waiting import WAIT_S, wait_until


CLIENTS = 100
DEADLINES = {"RIONI_HEADER_TIMEOUT_S": "2", "RIONI_BODY_TIMEOUT_S": "2"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of certificate and key of the server, and of the authority's certificate."""
    folder = tmp_path_factory.mktemp("tls")
    authority().issue(folder)
    authority().write(folder)
    return folder


def files(folder):
    """The options that name the certificate."""
    return "--tls-certificate", str(folder / "certificate.pem"), "--tls-key", str(folder / "key.pem")


@pytest.fixture(scope="module")
def server(folder):
    with running_server(folder / "data", "--workers", "1", *files(folder), environment=DEADLINES) as running:
        yield running


@pytest.fixture
def client(server):
    with server.client(verify=authority().context()) as client:
        yield client


def address(server):
    parts = urlsplit(server.url)
    return parts.hostname, parts.port


def connected(server, context=None):
    """A connection with TLS; the client notices if it is cut."""
    opened = socket.create_connection(address(server), timeout=WAIT_S)
    return (context or authority().context()).wrap_socket(
        opened, server_hostname="localhost", suppress_ragged_eofs=False
    )


def shown(server):
    """The serial number of the certificate that a new connection gets."""
    with connected(server) as connection:
        return connection.getpeercert()["serialNumber"]


def test_the_api_is_served_with_https(server, client, name, create, publish, subscribe):
    assert server.url.startswith("https://127.0.0.1:")
    subscription = subscribe(create(name), read_from="begin")
    publish(name, *map(str, range(10)))
    path = f"/subscriptions/{subscription}"
    with open_stream(client, f"{path}/events?batch_limit=10&stream_limit=10") as stream:
        batch = stream.filled_batch()
        assert len(batch["events"]) == 10
        headers = {"X-Nakadi-StreamId": stream.stream_id}
        assert client.post(f"{path}/cursors", json={"items": [batch["cursor"]]}, headers=headers).status_code == 204
        assert "info" in stream.batches()[-1]


def test_large_bodies_and_answers_work(client, name, create):
    create(name)
    large = [event(str(number), text="x" * 900_000) for number in range(10)]
    schema = {"type": "json_schema", "schema": '{"additionalProperties": true}'}
    client.post("/event-types", json=event_type_body(name=f"{name}.large", schema=schema)).raise_for_status()
    assert client.post(f"/event-types/{name}.large/events", json=large).status_code == 200
    cursors = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}
    path = f"/event-types/{name}.large/events?batch_limit=1&stream_limit=10"
    with open_stream(client, path, headers=cursors) as stream:
        assert [len(each["text"]) for each in stream.events(10)] == [900_000] * 10


def test_a_connection_serves_one_request_after_the_other(server):
    host, port = address(server)
    connection = http.client.HTTPSConnection(host, port, timeout=WAIT_S, context=authority().context())
    with contextlib.closing(connection):
        local = set()
        for _ in range(5):
            connection.request("GET", "/version")
            assert connection.getresponse().read()
            local.add(connection.sock.getsockname())
        assert len(local) == 1


def test_pipelined_requests_are_all_answered(server):
    request = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(server) as connection:
        connection.sendall(request * 9 + request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert read_all(connection).count(b"HTTP/1.1 200") == 10


def read_all(connection):
    """Everything up to the end, which the server has to announce: otherwise this raises."""
    pieces = []
    while piece := connection.recv(65_536):
        pieces.append(piece)
    return b"".join(pieces)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_insecure_versions_of_tls_are_rejected(server, version):
    context = authority().context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connected(server, context).close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_secure_versions_of_tls_are_accepted(server, version):
    context = authority().context()
    context.minimum_version = context.maximum_version = version
    with connected(server, context) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert read_all(connection).endswith(b"OK")


def test_a_slow_body_and_slow_headers_have_their_deadlines(server):
    head = b"POST /event-types HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
    with connected(server) as connection:
        connection.sendall(head + b"[")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 408")
    with connected(server) as connection:
        connection.sendall(head[:20])
        with contextlib.suppress(ConnectionResetError):
            assert read_all(connection) == b""


def hello():
    """The first bytes of a client that uses TLS."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def silent(connection):
    connection.recv(1)


def trickling(connection):
    for byte in hello():
        connection.sendall(bytes((byte,)))
        connection.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            return connection.recv(1)
    raise AssertionError("the server has taken it all")


def half_a_handshake(connection):
    connection.sendall(hello())
    while connection.recv(65_536):
        pass


def plain_text(connection):
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    while received := connection.recv(65_536):
        assert b"HTTP" not in received


def garbage(connection):
    connection.sendall(bytes(range(256)) * 64)
    while connection.recv(65_536):
        pass


ATTACKS = (silent, trickling, half_a_handshake, plain_text, garbage)


def attacked(server, attack):
    """Attack with a connection, until the server has closed it; fails at a timeout."""
    with contextlib.suppress(ConnectionError), socket.create_connection(address(server), timeout=WAIT_S) as connection:
        attack(connection)


@pytest.mark.parametrize("attack", ATTACKS)
def test_clients_that_do_not_finish_the_handshake_are_disconnected(server, attack):
    attacked(server, attack)
    assert not [line for line in server.lines if "Traceback" in line]


def test_many_unfinished_handshakes_block_no_other_client(server, client):
    """A hundred clients of each kind; all kinds at once."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        tasks = [pool.submit(attacked, server, attack) for attack in ATTACKS * (CLIENTS // len(ATTACKS))]
        served = 0
        while not all(task.done() for task in tasks):
            fresh = httpx.get(f"{server.url}/event-types", verify=authority().context(), timeout=WAIT_S)
            served += fresh.status_code == 200
        for task in tasks:
            task.result()
    assert served
    assert client.get("/health").text == "OK"
    assert not [line for line in server.lines if "Traceback" in line]


def test_a_new_certificate_is_used_while_streams_continue(server, client, folder, name, create, publish):
    create(name)
    before = shown(server)
    with open_stream(client, f"/event-types/{name}/events?batch_flush_timeout=1") as stream:
        authority().issue(folder, "renewed")
        wait_until(lambda: shown(server) != before)
        publish(name, "1")
        assert stream.events(1)[0]["order_id"] == "1"


def test_an_unusable_certificate_changes_nothing(server, folder):
    def warnings():
        return [line for line in server.lines if "could not reload the certificate; keeping the previous one" in line]

    for count, broken in enumerate((b"", b"no certificate"), len(warnings()) + 1):
        before = shown(server)
        replaced(folder / "certificate.pem", broken)
        wait_until(lambda count=count: len(warnings()) == count)
        assert shown(server) == before
    (folder / "key.pem").unlink()
    wait_until(lambda: "key.pem can't be read: No such file or directory" in warnings()[-1])
    assert shown(server) == before
    authority().issue(folder)
    wait_until(lambda: shown(server) != before)


def test_the_shutdown_of_the_server_is_announced_over_tls(folder, tmp_path, name):
    with running_server(tmp_path / "data", "--workers", "2", *files(folder)) as server:
        with server.client(verify=authority().context()) as client, contextlib.ExitStack() as stack:
            client.post("/event-types", json=event_type_body(name=name)).raise_for_status()
            # Connections without any data yet, not even a handshake, delay no shutdown.
            stack.enter_context(socket.create_connection(address(server)))
            stack.enter_context(connected(server))
            stream = stack.enter_context(open_stream(client, f"/event-types/{name}/events"))
            ended = []
            reader = threading.Thread(target=lambda: ended.extend(stream.batches()))
            reader.start()
            assert server.stop() == 0
            reader.join(WAIT_S)
        assert "info" in ended[-1]


def test_a_server_does_not_start_with_an_unusable_certificate(tmp_path):
    authority().issue(tmp_path, passphrase="sesame")
    said = refused_start(tmp_path / "data", *files(tmp_path))
    assert "the key has a passphrase" in said
    assert len(said.splitlines()) == 1


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command; returns exit code, stdout and stderr."""
    return partial(run_command, monkeypatch, capsys)


def test_commands_use_https_with_trusted_servers(server, folder, name, subscribe, create, run, monkeypatch):
    listed = ("dead-letters", "list", subscribe(create(name)), "--json", "--url", server.url)
    trusted = str(folder / "authority.pem")
    assert run(*listed, "--ca-certificate", trusted) == (0, "", "")
    for command in (listed, ("bench", "publish", "--seconds", "1", "--url", server.url)):
        code, _, said = run(*command)
        assert code == 2
        assert "unable to get local issuer certificate" in said
        assert "--ca-certificate" in said
    code, _, said = run(*listed, "--ca-certificate", str(folder / "key.pem"))
    assert code == 2
    assert f"{folder}/key.pem can't be used" in said
    monkeypatch.setenv("SSL_CERT_FILE", trusted)
    assert run(*listed) == (0, "", "")


def test_the_load_generator_uses_https(server, folder, run):
    common = "--url", server.url, "--ca-certificate", str(folder / "authority.pem"), "--json"
    code, out, said = run("bench", "publish", "--connections", "3", "--requests", "30", "--batch", "1000", *common)
    assert code == 0, said
    assert json.loads(out)["events"] == 30_000
    code, out, said = run("bench", "consume", "--events", "30000", *common)
    assert code == 0, said
    assert json.loads(out)["events"] >= 30_000
