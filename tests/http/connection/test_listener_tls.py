import contextlib
import os
import socket
import ssl

import pytest
from structlog.testing import capture_logs

from rioni.cli.broker.load_client import LoadTarget
from rioni.domain.errors import Unavailable
from rioni.http.connection.listener import Tls
from tests.support.certificates import authority, replaced


def _unlink(folder, name):
    (folder / name).unlink()


def _other_key(folder):
    (folder / "other").mkdir()
    replaced(folder / "key.pem", authority().issue(folder / "other")[1].read_bytes())


def _pipe(folder):
    _unlink(folder, "key.pem")
    os.mkfifo(folder / "key.pem")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: _unlink(folder, "key.pem"), "tls_key: {folder}/key.pem can't be read: No such file"),
        (lambda folder: _unlink(folder, "certificate.pem"), "tls_certificate: {folder}/certificate.pem can't be read"),
        (lambda folder: (folder / "certificate.pem").write_text("x"), "can't be used: "),
        (_other_key, "key values mismatch"),
        (_pipe, "tls_key: {folder}/key.pem is not a regular file"),
        (lambda folder: authority().issue(folder, passphrase="sesame"), "the key has a passphrase"),
    ],
    ids=["no key", "no certificate", "text", "the key of another one", "a pipe", "a passphrase"],
)
def test_unusable_files_are_named(tmp_path, damage, reason):
    authority().issue(tmp_path)
    damage(tmp_path)
    with pytest.raises(Unavailable) as caught:
        Tls(tmp_path / "certificate.pem", tmp_path / "key.pem")
    assert reason.format(folder=tmp_path) in str(caught.value)


@contextlib.contextmanager
def _pair(tls):
    """Both ends of a connection before its handshake."""
    ours, theirs = socket.socketpair()
    context = authority().context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    server = tls.wrap(ours)
    server.settimeout(0)
    with server, theirs:
        for _ in range(10):
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
            theirs.sendall(outgoing.read())
            with contextlib.suppress(ssl.SSLWantReadError):
                server.do_handshake()
            theirs.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                incoming.write(theirs.recv(65_536))
            theirs.setblocking(True)
        yield server, client, theirs, incoming


def _serial(tls):
    with _pair(tls) as (_, client, _, _):
        return client.getpeercert()["serialNumber"]


@pytest.fixture
def tls(tmp_path):
    return Tls(*authority().issue(tmp_path))


def test_a_changed_certificate_is_read_again_and_a_broken_one_is_logged_once(tls, tmp_path):
    first = _serial(tls)
    tls.reload()
    assert _serial(tls) == first
    authority().issue(tmp_path)
    tls.reload()
    second = _serial(tls)
    assert second != first
    _unlink(tmp_path, "key.pem")
    with capture_logs() as logs:
        tls.reload()
        tls.reload()
    assert [line["log_level"] for line in logs] == ["warning"]
    assert "key.pem can't be read" in logs[0]["reason"]
    assert _serial(tls) == second
    authority().issue(tmp_path)
    tls.reload()
    assert _serial(tls) != second


def test_data_sent_after_reading_was_shut_down_is_still_encrypted(tls):
    with _pair(tls) as (server, client, theirs, incoming):
        server.shutdown(socket.SHUT_RD)
        server.send(b"the last batch")
        received = theirs.recv(65_536)
        assert b"the last batch" not in received
        incoming.write(received)
        assert client.read(100) == b"the last batch"


def test_a_closed_connection_is_distinguished_from_a_cut_one(tls):
    with _pair(tls) as (server, client, theirs, incoming):
        server.close()
        incoming.write(theirs.recv(65_536))
        assert client.read(100) == b""


def test_data_that_is_not_tls_resets_the_connection(tls):
    with _pair(tls) as (server, _, theirs, _):
        theirs.sendall(b"x" * 100)
        with pytest.raises(ConnectionResetError):
            server.recv(100)


def test_clients_of_the_command_line_check_certificate_and_name(tmp_path):
    for context in (
        LoadTarget("https://x").tls,
        LoadTarget("https://x", ca_certificate=authority().write(tmp_path)).tls,
    ):
        assert context.check_hostname
        assert context.verify_mode == ssl.CERT_REQUIRED
    assert LoadTarget("http://x").tls is None
    assert LoadTarget("https://x").address == ("x", 443)
