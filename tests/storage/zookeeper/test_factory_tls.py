"""ZooKeeper over TLS, with client certificates."""

import datetime as dt
import ipaddress
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rioni.cli.cluster.cluster import fetch_jars, missing_programs
from rioni.cli.cluster.servers import HOST, free_ports, zookeeper
from rioni.domain.errors import Unavailable
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.zookeeper.factory import ZooKeeperOptions, open_shared
from tests.contracts.coordination import ALL
from tests.storage.zookeeper import patched


pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]


@pytest.fixture(scope="module")
def pem(tmp_path_factory) -> Path:
    """A key and a self-signed certificate of this machine."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "this machine")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "own.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture(scope="module")
def secure(tmp_path_factory, pem: Path) -> Iterator[str]:
    """The address of a server that uses TLS."""
    if reason := missing_programs():
        pytest.skip(reason)
    client, peer, election, port = free_ports(4)
    folder = tmp_path_factory.mktemp("zookeeper")
    server = zookeeper(fetch_jars(), folder, 1, {1: (client, peer, election)})
    with (folder / "zoo.cfg").open("a") as settings:
        settings.write(
            f"secureClientPort={port}\nsecureClientPortAddress={HOST}\n"
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"ssl.keyStore.location={pem}\nssl.keyStore.type=PEM\n"
            f"ssl.trustStore.location={pem}\nssl.trustStore.type=PEM\n"
        )
    server.start()
    server.wait()
    yield f"{HOST}:{port}/rioni"
    server.kill()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[EmbeddedSignals]:
    with closing(EmbeddedSignals(tmp_path)) as local:
        yield local


def test_with_certificates_of_both_sides_all_works_as_without_tls(secure: str, pem: Path, local: EmbeddedSignals):
    options = ZooKeeperOptions(ca=str(pem), certificate=str(pem), key=str(pem))
    with closing(open_shared(secure, local, options=options).coordinator) as coordinator:
        coordinator.initialise("s", ALL)
        assert coordinator.cursors("s") == ALL


def test_tls_works_in_a_patched_process(secure: str, pem: Path, tmp_path: Path):
    patched.run(secure, tmp_path, str(pem))


def test_a_client_without_a_certificate_is_rejected(secure: str, pem: Path, local: EmbeddedSignals):
    with pytest.raises(Unavailable, match="can't be used"):
        open_shared(secure, local, session_timeout_s=2, options=ZooKeeperOptions(ca=str(pem)))
