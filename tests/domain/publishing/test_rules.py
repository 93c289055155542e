"""The estimate of the memory that compiled rules take, by which the cache of a worker is bounded."""

import json
import subprocess
import sys

import msgspec
import pytest

from rioni.domain.event_types.event_type import Schema
from rioni.domain.publishing.rules import PublishRules
from tests.support.builders import event_type


def patterns(*each):
    return {"properties": {f"member_{number}": {"pattern": pattern} for number, pattern in enumerate(each)}}


SCHEMAS = {
    "members": {"properties": {f"member_{number}": {"type": "string"} for number in range(1_500)}},
    "a long text": {"description": "x" * 200_000},
    "a long enumeration": {"properties": {"a": {"enum": list(range(30_000))}}},
    "required members": {"required": [f"member_{number}" for number in range(10_000)]},
    "formats": {"properties": {f"member_{number}": {"format": "date-time"} for number in range(1_000)}},
    "large patterns": patterns(*(f"(a{{1,50}}){{1,5}}{number}" for number in range(20))),
    "small patterns": patterns(*(f"^[a-z]+{number}$" for number in range(100))),
    "patterns of all letters": patterns(*(rf"^[\w\s]{{1,80}}{number}$" for number in range(9))),
}
COPIES = 6
MEASURE = """
import ctypes, gc, sys
from pathlib import Path
import msgspec
from rioni.domain.event_types.event_type import EventType
from rioni.domain.publishing.rules import PublishRules

def resident():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

event_type, copies = msgspec.json.decode(sys.stdin.buffer.read(), type=EventType), int(sys.argv[1])
kept = [PublishRules.of(event_type, partitions=1)]
before = resident()
kept += [PublishRules.of(event_type, partitions=1) for _ in range(copies)]
print((resident() - before) // copies)
"""


def schema_of(document):
    return Schema(type="json_schema", schema=json.dumps(document), version="1.0.0", created_at="")


@pytest.mark.parametrize("kind", SCHEMAS)
def test_compiled_schemas_take_no_more_memory_than_estimated(kind):
    wanted = event_type(category="undefined", enrichment_strategies=(), schema=schema_of(SCHEMAS[kind]))
    took = subprocess.run(
        [sys.executable, "-c", MEASURE, str(COPIES)], input=msgspec.json.encode(wanted), capture_output=True, check=True
    )
    estimate = PublishRules.of(wanted, partitions=1).bytes_
    assert int(took.stdout) <= 1.3 * estimate
