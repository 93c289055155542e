"""Connections to brokers that require authentication and encryption: SASL over TLS."""

import ipaddress
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rioni.cli.cluster.cluster import fetch_jars, missing_programs
from rioni.cli.cluster.servers import HOST, free_ports, kafka, new_cluster_id
from rioni.domain.errors import NotFound, PartiallyStored, Unavailable
from rioni.domain.ports.event_store import EventStore
from rioni.domain.publishing.headers import IdempotencyClaim
from rioni.domain.system.storages import StorageEntry
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.kafka.client import KafkaConnection
from rioni.storage.kafka.factory import opener
from tests.contracts.event_store import TOPIC, events, read_all
from tests.support.waiting import wait_until


pytestmark = [pytest.mark.kafka, pytest.mark.slow]

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def write_certificate(folder: Path) -> Path:
    """A self-signed certificate, with its key in front of it in `key.pem`."""
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
    if reason := missing_programs():
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
        # By default every user may do everything, so that tests only list what is forbidden.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:broker;User:ANONYMOUS",
        # The usual default.
        "auto.create.topics.enable": "true",
    }
    folder = tmp_path_factory.mktemp("kafka")
    server = kafka(fetch_jars(), folder, 1, {1: (client_port, controller_port)}, new_cluster_id(), settings)
    server.start()
    try:
        server.wait()
        yield f"{HOST}:{client_port}"
    finally:
        server.kill()


@pytest.fixture
def forbid(broker: str, certificate: Path) -> Callable[..., AbstractContextManager[None]]:
    """Makes the broker forbid some operations to us, until the end of a block."""
    options = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.ca.location": str(certificate)}
    admin = AdminClient({"bootstrap.servers": broker, "sasl.username": "broker", "sasl.password": "b", **options})
    cluster, topics = (ResourceType.BROKER, "kafka-cluster"), (ResourceType.TOPIC, "*")

    def entry(kind: type, of: tuple[ResourceType, str], what: AclOperation, permission: AclPermissionType) -> Any:
        return kind(*of, ResourcePatternType.LITERAL, "User:rioni", "*", what, permission)

    @contextmanager
    def forbid(*operations: AclOperation) -> Iterator[None]:
        entries = [(of, AclOperation.ALL, AclPermissionType.ALLOW) for of in (cluster, topics)] + [
            (cluster if each == AclOperation.IDEMPOTENT_WRITE else topics, each, AclPermissionType.DENY)
            for each in operations
        ]
        wait(admin.create_acls([entry(AclBinding, *each) for each in entries]).values())
        try:
            yield
        finally:
            wait(admin.delete_acls([entry(AclBindingFilter, *each) for each in entries]).values())

    return forbid


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
    assert store.append(TOPIC, {0: events(2)}, claim=IdempotencyClaim("name", "digest")) == {0: 1}
    assert read_all(store, TOPIC, 0) == events(1, 2)
    assert read_all(open_store(), TOPIC, 0) == events(1, 2)
    assert store.delete_before(TOPIC, SystemClock().now_ms() + 1) == 2
    store.close_topic(TOPIC)
    store.delete_topic(TOPIC)


@pytest.mark.parametrize(
    "changes",
    [{"sasl.password": "wrong"}, {"security.protocol": "SASL_PLAINTEXT"}, {"security.protocol": "PLAINTEXT"}],
    ids=["a wrong password", "no TLS", "neither"],
)
def test_a_rejected_connection_is_unavailable_and_shows_no_password(open_store, changes, capfd):
    with pytest.raises(Unavailable) as caught:
        open_store(**changes).create_topic("other", 1)
    out, err = capfd.readouterr()
    for password in ("s3cret", "wrong"):
        assert password not in f"{caught.value}{out}{err}"


def test_a_broker_without_a_trusted_certificate_gets_no_password(open_store, tmp_path):
    store = open_store(**{"ssl.ca.location": str(write_certificate(tmp_path))})
    with pytest.raises(Unavailable):
        store.create_topic("other", 1)


def test_publishing_continues_when_it_is_allowed_again(open_store, forbid):
    store = open_store()
    store.create_topic("forbidden", 1)
    with forbid(AclOperation.IDEMPOTENT_WRITE, AclOperation.WRITE), pytest.raises((PartiallyStored, Unavailable)):
        store.append("forbidden", {0: events(1)})

    def appended() -> bool:
        with suppress(PartiallyStored, Unavailable):
            return bool(store.append("forbidden", {0: events(2)}))
        return False

    wait_until(appended)
    assert read_all(store, "forbidden", 0) == events(2)


@pytest.mark.parametrize(("brokers", "copies"), [(1, (1, 1)), (2, (2, 1)), (3, (3, 2)), (9, (3, 2))])
def test_a_topic_has_as_many_copies_as_there_are_brokers_for(brokers, copies):
    connection = KafkaConnection(bootstrap_servers=HOST, topic_prefix="")
    assert connection.copies(brokers) == copies
    with pytest.raises(Unavailable, match="none of its brokers"):
        connection.copies(0)


def test_no_topic_is_created_by_reading_or_publishing(open_store):
    store, other_store = open_store(), open_store()
    for _ in range(2):
        with pytest.raises(NotFound):
            store.bounds("gone")
    store.create_topic("gone", 1)
    other_store.append("gone", {0: events(1)})
    store.delete_topic("gone")
    for each in (store, other_store):
        with pytest.raises(NotFound):
            each.append("gone", {0: events(2)})
        with pytest.raises(NotFound):
            each.bounds("gone")


def test_a_topic_that_we_may_not_read_is_not_closed(open_store, forbid):
    store = open_store()
    store.create_topic("unreadable", 1)
    with forbid(AclOperation.READ), pytest.raises(Unavailable, match="authorization"):
        store.close_topic("unreadable")


def test_reading_a_topic_that_is_forbidden_by_now_is_an_error(open_store, forbid):
    store, other_store = open_store(), open_store()
    store.create_topic("revoked", 1)
    assert store.newest("revoked") == [-1]
    with forbid(AclOperation.READ):
        other_store.append("revoked", {0: events(1)})

        def read() -> str:
            try:
                store.read("revoked", 0, 0, 1_000)
            except Unavailable as ex:
                return str(ex)
            return ""

        assert "authorization" in wait_until(read)
    wait_until(lambda: not read())
    assert read_all(store, "revoked", 0) == events(1)
