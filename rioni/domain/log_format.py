"""The formats of the log: which class versions of which domain events each release reads and writes.

A release that adds a topic, or raises the class version of one, adds a format here. A log states the format in which it
is written. That is raised only when every live node can read the next one, so nodes of two releases can share a log.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Format(NamedTuple):
    """Additions of one format to the previous one."""

    release: str
    """The first release that reads and writes it."""
    versions: Mapping[str, int]
    """Class versions by topic, written from this format on; 1 for a topic that is new in it."""


Formats = Mapping[int, Format]
"""By number, from 1 without gaps."""

FORMATS: Formats = MappingProxyType(
    {
        1: Format("0.1.0", {}),
        2: Format("0.1.1", {"event-chains.anchored": 1, "log-keys.added": 1, "timeline.digested": 1}),
    }
)
"""Format 1 has every topic that no later format lists, at class version 1."""


def newest(formats: Formats) -> int:
    """The newest format that this release reads, and writes unless another node needs an older one."""
    return max(formats)


def version_in(topic: str, number: int, formats: Formats) -> int:
    """The class version of a topic in a format; 0 if the format does not have the topic.

    Args:
        topic: of a domain event.
        number: of the format; may be newer than all known ones.
        formats: all known ones.
    """
    changes = {known: each.versions[topic] for known, each in formats.items() if topic in each.versions}
    if not changes:
        return 1
    before = 0 if changes[min(changes)] == 1 else 1
    return max((version for known, version in changes.items() if known <= number), default=before)
