"""How brokers are reached that want to know who comes, and let nobody listen: SASL over TLS."""

import ipaddress
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rioni.domain.errors import Unavailable
from rioni.domain.ports import Claim, EventStore
from rioni.domain.storage_entry import StorageEntry
from rioni.local_cluster import jars
from rioni.local_cluster.servers import HOST, free_ports, kafka, new_cluster_id
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.kafka.opening import opener
from tests.contracts.event_store import TOPIC, events, read_all


pytestmark = [pytest.mark.kafka, pytest.mark.slow]

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def write_certificate(folder: Path) -> Path:
    """A certificate that vouches for itself, with its key in front of it in `key.pem`."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kafka")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    written = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + written
    )
    (path := folder / "certificate.pem").write_bytes(written)
    return path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker(certificate: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if reason := jars.missing():
        pytest.skip(reason)
    client_port, controller_port = free_ports(2)
    own = {"ssl.keystore": certificate.with_name("key.pem"), "ssl.truststore": certificate}
    settings = {f"listener.name.client.{name}.location": path for name, path in own.items()}
    settings |= {f"listener.name.client.{name}.type": "PEM" for name in own}
    settings |= {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,CONTROLLER:PLAINTEXT",
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": (
            f'{LOGIN} username="broker" password="b" user_broker="b" user_rioni="s3cret";'
        ),
    }
    folder = tmp_path_factory.mktemp("kafka")
    server = kafka(jars.fetch(), folder, 1, {1: (client_port, controller_port)}, new_cluster_id(), settings)
    server.start()
    try:
        server.wait()
        yield f"{HOST}:{client_port}"
    finally:
        server.kill()


@pytest.fixture
def open_store(broker: str, tmp_path: Path, certificate: Path) -> Iterator[Callable[..., EventStore]]:
    signals = EmbeddedSignals(tmp_path)
    stores: list[EventStore] = []

    def open_store(**changes: str) -> EventStore:
        given = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "rioni",
            "sasl.password": "s3cret",
            "ssl.ca.location": str(certificate),
        }
        (path := tmp_path / "kafka.toml").write_text(
            f'["{broker}"]\n' + "".join(f'{name} = "{value}"\n' for name, value in (given | changes).items())
        )
        database = f"sqlite:///{tmp_path / 'names.db'}"
        options = {"database": database, "clock": SystemClock(), "signals": signals, "append_timeout_s": 5.0}
        open_entry = opener(broker, path, request_timeout_s=3.0, **options)
        stores.append(open_entry(StorageEntry(id="kafka", storage_type="kafka", default=True)))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()
    signals.close()


def test_everything_works_with_a_password_over_tls(open_store):
    store = open_store()
    store.create_topic(TOPIC, 1)
    assert store.append(TOPIC, {0: events(1)}) == {0: 0}
    assert store.append(TOPIC, {0: events(2)}, claim=Claim("name", "digest")) == {0: 1}
    assert read_all(store, TOPIC, 0) == events(1, 2)
    assert read_all(open_store(), TOPIC, 0) == events(1, 2)
    assert store.expire(TOPIC, SystemClock().now_ms() + 1) == 2
    store.close_topic(TOPIC)
    store.delete_topic(TOPIC)


@pytest.mark.parametrize(
    "changes",
    [{"sasl.password": "wrong"}, {"security.protocol": "SASL_PLAINTEXT"}, {"security.protocol": "PLAINTEXT"}],
    ids=["a wrong password", "no TLS", "neither"],
)
def test_what_the_brokers_do_not_accept_is_unavailable_and_shows_no_password(open_store, changes, capfd):
    with pytest.raises(Unavailable) as caught:
        open_store(**changes).create_topic("other", 1)
    out, err = capfd.readouterr()
    for password in ("s3cret", "wrong"):
        assert password not in f"{caught.value}{out}{err}"


def test_a_broker_without_a_certificate_that_somebody_vouches_for_gets_no_password(open_store, tmp_path):
    store = open_store(**{"ssl.ca.location": str(write_certificate(tmp_path))})
    with pytest.raises(Unavailable):
        store.create_topic("other", 1)
