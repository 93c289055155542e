"""Finds out whether the brokers that may lead a topic's partitions have heard how it is configured.

Brokers read one log of all changes, each in its own time. One that is made the leader before it has read that a topic
was closed goes by what the topic was before, for the instant between two steps of its own. So whoever closes a topic
waits for all who have copies, be they leaders or not: each that becomes one later has closed it before.
"""

import time
from collections.abc import Callable

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from rioni.domain.errors import Unavailable
from rioni.storage.kafka.probes import LOOK_EVERY_S, RENEWED_EVERY_S, SETTLED_S


ANSWER_TIMEOUT_S = 2.0


def until_heard(
    connect: Callable[[], AdminClient], name: str, setting: str, value: str
) -> tuple[AdminClient, set[int]]:
    """Wait until all brokers with copies of a topic know a setting of it; blocks.

    Those that Kafka takes for dead are not waited for: they can't lead before they are back, and read again.

    Args:
        connect: makes a client. One that only knows a broker that is cut off from the others believes it for ever.
        name: of the topic.
        setting: of its configuration.
        value: what it has to be.

    Returns:
        The client that says who has copies, and the brokers that know it.

    Raises:
        KafkaException: Kafka does not answer.
        Unavailable: they do not all hear of it in time.
    """
    heard: set[int] = set()
    admin, renewed_s = connect(), time.monotonic()
    deadline_s = renewed_s + SETTLED_S
    while True:
        if time.monotonic() - renewed_s > RENEWED_EVERY_S:
            admin, renewed_s = connect(), time.monotonic()
        try:
            copies = _living_copies(admin, name)
        except KafkaException:
            # It may have asked the very broker that hangs; the next time it asks another one.
            if time.monotonic() > deadline_s:
                raise
            time.sleep(LOOK_EVERY_S)
            continue
        if not (waiting := copies - heard):
            return admin, heard
        if time.monotonic() > deadline_s:
            raise Unavailable(
                f"The brokers {', '.join(map(str, sorted(waiting)))} of Kafka have not heard in time how the topic "
                f"{name} is configured. Try again later."
            )
        heard |= _who_say(admin, waiting, name, setting, value)
        if waiting - heard:
            time.sleep(LOOK_EVERY_S)


def _living_copies(admin: AdminClient, name: str) -> set[int]:
    found = admin.list_topics(name, ANSWER_TIMEOUT_S)
    if (error := found.topics[name].error) is not None:
        raise KafkaException(error)
    copies: set[int] = {number for each in found.topics[name].partitions.values() for number in each.replicas}
    return copies.intersection(found.brokers)


def _who_say(admin: AdminClient, brokers: set[int], name: str, setting: str, value: str) -> set[int]:
    """Those of some brokers that know the value of a topic's setting."""
    topic = ConfigResource(ResourceType.TOPIC, name)
    # Beside a question about a broker, that about the topic goes to the same broker.
    answers = {
        number: admin.describe_configs(
            [topic, ConfigResource(ResourceType.BROKER, str(number))], request_timeout=ANSWER_TIMEOUT_S
        )[topic]
        for number in brokers
    }
    heard = set()
    for number, answer in answers.items():
        try:
            if answer.result()[setting].value == value:
                heard.add(number)
        except KafkaException:
            continue  # asked again
    return heard
