"""Annotations and labels: the syntax of their keys and values, and the annotations that the broker itself reads."""

import re
from collections.abc import Iterator, Mapping
from itertools import islice

from rioni.domain.errors import InvalidFields
from rioni.domain.event_types.event_type import EventType
from rioni.domain.limits import LABELS_MAX, size_violations


# --- Annotations and labels: the syntax of their keys and values (reference event-types#annotations-and-labels) ---

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


# --- Validates the annotations that decide whether, and for how long, events are kept in the data lake ---
#
# Source: reference event-types#annotations-and-labels.

MATERIALIZE = "datalake.zalando.org/materialize-events"
PERIOD = "datalake.zalando.org/retention-period"
REASON = "datalake.zalando.org/retention-period-reason"

PERIODS = "must be 'unlimited' or a number of days (7-3650), weeks (1-521), months (1-120) or years (1-10)"
_PERIOD = re.compile(r"([1-9][0-9]{0,3}) ?(d|days?|w|weeks?|m|months?|y|years?)")
_BOUNDS = {"d": (7, 3_650), "w": (1, 521), "m": (1, 120), "y": (1, 10)}


def check_data_lake(annotations: Mapping[str, str], *, mandatory: bool) -> None:
    """Check the annotations for the data lake.

    Args:
        annotations: all annotations of an event type.
        mandatory: whether the annotations are required.

    Raises:
        InvalidFields: names the annotations that are missing or wrong.
    """
    violations = list(_violations(annotations, mandatory=mandatory))
    if violations:
        raise InvalidFields([(f"annotations[{key}]", message) for key, message in violations])


def _violations(annotations: Mapping[str, str], *, mandatory: bool) -> Iterator[tuple[str, str]]:
    materialize, period = annotations.get(MATERIALIZE), annotations.get(PERIOD)
    if materialize is None and mandatory:
        yield MATERIALIZE, "must not be null"
    if materialize not in (None, "on", "off"):
        yield MATERIALIZE, "must be 'on' or 'off'"
    if materialize == "on" and period is None:
        yield PERIOD, f"must not be null when {MATERIALIZE} is 'on'"
    if period is None:
        return
    if not annotations.get(REASON):
        yield REASON, f"must not be empty when {PERIOD} is given"
    if not is_period(period):
        yield PERIOD, PERIODS


def is_period(text: str) -> bool:
    """Whether the annotation may have this value."""
    if text == "unlimited":
        return True
    if (match := _PERIOD.fullmatch(text)) is None:
        return False
    least, most = _BOUNDS[match[2][0]]
    return least <= int(match[1]) <= most
