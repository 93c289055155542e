"""Waits until a topic's configuration has propagated to all brokers that may lead it.

Brokers read one log of all changes, each in its own time. One that is made the leader before it has read that a topic
was closed goes by what the topic was before, for the instant between two steps of its own. So whoever closes a topic
waits for all who have copies, be they leaders or not: each that becomes one later has closed it before.
"""

import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from rioni.domain.errors import Unavailable
from rioni.storage.kafka.admin import Admin, pause
from rioni.storage.kafka.topics.append_probe import LOOK_EVERY_S


ANSWER_TIMEOUT_S = 2.0


def wait_until_propagated(admin: Admin, name: str, setting: str, value: str, deadline_s: float) -> set[int]:
    """Wait until all brokers with copies of a topic know a setting of it; blocks.

    Those that Kafka takes for dead are not waited for: they can't lead before they are back, and read again.

    Args:
        admin: renewed now and then. A client that only knows a broker that is cut off from the others believes it for
            ever.
        name: of the topic.
        setting: of its configuration.
        value: what it has to be.
        deadline_s: how long to wait, on the monotonic clock.

    Returns:
        The brokers that know it.

    Raises:
        KafkaException: Kafka does not answer.
        Unavailable: they do not all hear of it in time.
    """
    heard: set[int] = set()
    while True:
        admin.renew()
        try:
            copies = _living_copies(admin, name)
        except KafkaException:
            # It may have asked the very broker that hangs; the next time it asks another one.
            if time.monotonic() > deadline_s:
                raise
            pause(LOOK_EVERY_S)
            continue
        if not (waiting := copies - heard):
            return heard
        if time.monotonic() > deadline_s:
            raise Unavailable(
                f"Kafka brokers {', '.join(map(str, sorted(waiting)))} did not apply the configuration of topic "
                f"{name} in time. Try again later."
            )
        heard |= _who_say(admin, waiting, name, setting, value)
        if waiting - heard:
            pause(LOOK_EVERY_S)


def _living_copies(admin: Admin, name: str) -> set[int]:
    found = admin.metadata(name, ANSWER_TIMEOUT_S)
    if (error := found.topics[name].error) is not None:
        raise KafkaException(error)
    copies: set[int] = {number for each in found.topics[name].partitions.values() for number in each.replicas}
    return copies.intersection(found.brokers)


def _who_say(admin: Admin, brokers: set[int], name: str, setting: str, value: str) -> set[int]:
    """Those of some brokers that know the value of a topic's setting."""
    topic = ConfigResource(ResourceType.TOPIC, name)
    # Beside a question about a broker, that about the topic goes to the same broker.
    requests = {
        number: admin.begin(
            "describe_configs",
            [topic, ConfigResource(ResourceType.BROKER, str(number))],
            timeout_s=ANSWER_TIMEOUT_S,
        )
        for number in brokers
    }
    heard = set()
    for number, request in requests.items():
        try:
            if request.result()[topic][setting].value == value:
                heard.add(number)
        except KafkaException:
            continue  # asked again
    return heard
