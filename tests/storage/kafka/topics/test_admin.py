import gc
import time
from uuid import uuid4

import pytest
from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic

from rioni.cli.cluster.servers import free_ports
from rioni.storage.kafka.client import KafkaConnection
from rioni.storage.kafka.topics import admin as module
from rioni.storage.kafka.topics.admin import Admin


ENOUGH_S = 20


@pytest.fixture
def nowhere() -> Admin:
    """An admin client for brokers that do not exist."""
    (port,) = free_ports(1)
    return Admin(KafkaConnection(bootstrap_servers=f"127.0.0.1:{port}", request_timeout_s=0.2))


@pytest.mark.kafka
def test_requests_in_progress_are_answered_when_the_client_is_renewed(connection: KafkaConnection, monkeypatch):
    monkeypatch.setattr(module, "RENEWED_EVERY_S", -1.0)
    admin, topic = Admin(connection), str(uuid4())
    admin.request("create_topics", [NewTopic(topic, 1, 1)])
    requests = []
    for _ in range(5):
        requests.append(admin.begin("describe_cluster"))
        admin.renew()
        gc.collect()
    assert [len(request.result().nodes) for request in requests] == [1] * 5
    admin.request("delete_topics", [topic])


@pytest.mark.kafka
def test_an_error_of_one_item_fails_the_request(connection: KafkaConnection):
    admin = Admin(connection)
    for name, items in (
        ("delete_topics", [str(uuid4())]),
        ("create_topics", [NewTopic("no/name", 1, 1)]),
        ("list_offsets", [TopicPartition(str(uuid4()), 0, OFFSET_END)]),
        ("delete_records", [TopicPartition(str(uuid4()), 0, 1)]),
    ):
        with pytest.raises(KafkaException):
            admin.request(name, items)


def test_a_request_that_no_broker_answers_ends_by_its_timeout(nowhere: Admin):
    for call in (lambda: nowhere.request("describe_cluster"), nowhere.metadata, lambda: nowhere.metadata("topic")):
        begun_s = time.monotonic()
        with pytest.raises(KafkaException):
            call()
        assert time.monotonic() - begun_s < ENOUGH_S


def test_a_request_that_the_client_never_answers_ends_by_a_deadline_of_its_own(nowhere: Admin, monkeypatch):
    monkeypatch.setattr(module, "GRACE_S", 0.1)
    monkeypatch.setattr(module, "RENEWED_EVERY_S", -1.0)
    request, client = nowhere.begin("describe_cluster"), nowhere._client
    # Discards the log output of librdkafka.
    request._answer = module.Answer()
    with pytest.raises(KafkaException) as caught:
        request.result()
    assert caught.value.args[0].code() == KafkaError._TIMED_OUT
    assert nowhere._client is not client


def test_a_client_that_is_new_is_not_renewed(nowhere: Admin):
    client = nowhere._client
    nowhere.renew()
    assert nowhere._client is client
