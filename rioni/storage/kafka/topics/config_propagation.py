"""Waits until a topic's configuration has propagated to all brokers that may lead it.

Brokers apply one log of all changes, each at its own pace. A broker that becomes the leader before it has applied the
closing of a topic uses the previous configuration for an instant. So closing a topic waits for all brokers with
replicas, leaders or not: each later leader has then already applied the change.
"""

import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from rioni.domain.errors import Unavailable
from rioni.storage.kafka.topics.admin import Admin, pause
from rioni.storage.kafka.topics.append_probe import LOOK_EVERY_S


ANSWER_TIMEOUT_S = 2.0


def wait_until_propagated(admin: Admin, name: str, setting: str, value: str, deadline_s: float) -> set[int]:
    """Wait until all brokers with replicas of a topic know the value of a setting; blocks.

    Brokers that Kafka considers dead are skipped: they can't lead before they have caught up.

    Args:
        admin: renewed regularly. A client that only knows a broker cut off from the others never notices.
        name: of the topic.
        setting: of its configuration.
        value: the expected value.
        deadline_s: when to stop waiting, on the monotonic clock.

    Returns:
        The brokers that know it.

    Raises:
        KafkaException: Kafka does not answer.
        Unavailable: not all of them know it in time.
    """
    configured: set[int] = set()
    while True:
        admin.renew()
        try:
            copies = _living_copies(admin, name)
        except KafkaException:
            # The request may have gone to the very broker that hangs; the next one goes to another.
            if time.monotonic() > deadline_s:
                raise
            pause(LOOK_EVERY_S)
            continue
        if not (waiting := copies - configured):
            return configured
        if time.monotonic() > deadline_s:
            raise Unavailable(
                f"Kafka brokers {', '.join(map(str, sorted(waiting)))} did not apply the configuration of topic "
                f"{name} in time. Try again later."
            )
        configured |= _brokers_with(admin, waiting, name, setting, value)
        if waiting - configured:
            pause(LOOK_EVERY_S)


def _living_copies(admin: Admin, name: str) -> set[int]:
    found = admin.metadata(name, ANSWER_TIMEOUT_S)
    if (error := found.topics[name].error) is not None:
        raise KafkaException(error)
    copies: set[int] = {number for each in found.topics[name].partitions.values() for number in each.replicas}
    return copies.intersection(found.brokers)


def _brokers_with(admin: Admin, brokers: set[int], name: str, setting: str, value: str) -> set[int]:
    """Return the brokers that know the value of a topic's setting."""
    topic = ConfigResource(ResourceType.TOPIC, name)
    # In a request with a broker resource, the topic resource goes to the same broker.
    requests = {
        number: admin.begin(
            "describe_configs",
            [topic, ConfigResource(ResourceType.BROKER, str(number))],
            timeout_s=ANSWER_TIMEOUT_S,
        )
        for number in brokers
    }
    configured = set()
    for number, request in requests.items():
        try:
            if request.result()[topic][setting].value == value:
                configured.add(number)
        except KafkaException:
            continue  # retried
    return configured
