"""Annotations and labels: the syntax of their keys and values (reference event-types#annotations-and-labels)."""

import re
from collections.abc import Iterator, Mapping
from itertools import islice

from rioni.domain.event_types.event_type import EventType
from rioni.domain.limits import LABELS_MAX, size_violations


_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")

PREFIX_CHARACTERS_MAX = 253
NAME_CHARACTERS_MAX = 63
ANNOTATION_BYTES_MAX = 1000
LABEL_CHARACTERS_MAX = 63


def annotation_violations(annotations: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield `(path, message)` for every invalid key or value of annotations."""
    yield from size_violations("annotations", annotations, LABELS_MAX)
    for key, value in islice(annotations.items(), LABELS_MAX):
        path = f"annotations[{key}]"
        yield from ((path, message) for message in _key_problems(key))
        if len(value.encode()) > ANNOTATION_BYTES_MAX:
            yield path, f"size must be between 0 and {ANNOTATION_BYTES_MAX}"


def label_violations(labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield `(path, message)` for every invalid key or value of labels."""
    yield from size_violations("labels", labels, LABELS_MAX)
    for key, value in islice(labels.items(), LABELS_MAX):
        path = f"labels[{key}]"
        yield from ((path, message) for message in _key_problems(key))
        if len(value) > LABEL_CHARACTERS_MAX:
            yield path, f"size must be between 0 and {LABEL_CHARACTERS_MAX}"
        elif not _LABEL_VALUE.fullmatch(value):
            yield path, "Should contain only allowed symbols"


def _key_problems(key: str) -> Iterator[str]:
    if not key:
        yield "Key cannot be empty"
    prefix, slash, name = key.rpartition("/")
    if slash and (not _PREFIX.fullmatch(prefix)):
        yield "Key name should be an optional lowercase domain name with path"
    if len(prefix) > PREFIX_CHARACTERS_MAX:
        yield f"Key prefix cannot be more than {PREFIX_CHARACTERS_MAX} characters."
    if len(name) > NAME_CHARACTERS_MAX:
        yield f"Key name cannot be more than {NAME_CHARACTERS_MAX} characters."
    if not _NAME.fullmatch(name):
        yield "Key name should start and end with a letter or a digit"


IDEMPOTENT_PUBLISHING = "rioni.io/idempotent-publishing"
"""The annotation that enables deduplication by eid for an event type."""
SWITCH = ("on", "off")


def switch_violations(annotations: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield `(path, message)` if the annotation is neither on nor off."""
    if annotations.get(IDEMPOTENT_PUBLISHING, "off") not in SWITCH:
        yield f"annotations[{IDEMPOTENT_PUBLISHING}]", f"must be one of {', '.join(SWITCH)}"


def stores_eids_once(event_type: EventType) -> bool:
    """Whether events are deduplicated by eid."""
    return event_type.annotations.get(IDEMPOTENT_PUBLISHING) == "on"
