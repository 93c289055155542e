"""The most hostile data, in a separate process: one that dies, or grows, must not affect the other tests."""

import subprocess
import sys


BYTES_MAX = 256 * 1024 * 1024

PROGRAM = f"""
import json, resource
import rioni.commands.publisher
resource.setrlimit(resource.RLIMIT_AS, ({4 * BYTES_MAX}, {4 * BYTES_MAX}))
begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

from rioni.domain.avro.binary import DatumError
from rioni.domain.avro.envelopes import read_publishing_batch
from rioni.domain.avro.parsing import parse_event_schema
from rioni.domain.avro.rendering import Renderer
from rioni.domain.avro.binary import PUBLISHING, batch_schema
from rioni.domain.errors import Invalid, RioniError

def record(*fields, name="R"):
    return {{"type": "record", "name": name, "fields": [{{"name": n, "type": t}} for n, t in fields]}}

refused = 0
def refuse(function, *arguments):
    global refused
    try:
        function(*arguments)
    except (DatumError, RioniError):
        refused += 1

# 10 kB that are a record 10,000 deep, and five bytes that are twenty million items: no schema lets them in.
recursive = record(("next", ["null", "R"]))
refuse(parse_event_schema, json.dumps(recursive))
refuse(parse_event_schema, json.dumps(record(("a", {{"type": "array", "items": "null"}}))))
refuse(parse_event_schema, '{{"type":"array","items":' * 100_000)
refuse(parse_event_schema, "[" * 250_000)

# Counts, lengths and nesting that the schema permits but the data lack.
def long(number):
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))

nested = "int"
for _ in range(62):
    nested = {{"type": "array", "items": nested}}
wide = record(*[(f"a_rather_long_name_of_a_field_{{n}}", "null") for n in range(4_000)], ("z", "boolean"), name="W")
for type_, datum in [
    ({{"type": "array", "items": "boolean"}}, long(20_000_000) + b"\\x00" * 9),
    ({{"type": "array", "items": "boolean"}}, long(1_000_000) + b"\\x00" * 1_000_001),
    ({{"type": "map", "values": "boolean"}}, long(500_000) + b"\\x00" * 1_000_001),
    ({{"type": "array", "items": wide}}, long(990_000) + b"\\x00" * 990_001),
    ({{"type": "array", "items": ["null", wide]}}, long(490_000) + b"\\x02\\x00" * 490_000 + b"\\x00"),
    (nested, b"\\x02" * 990_000),
    (nested, b"\\xfe\\xff\\xff\\x01" * 200_000),
    ("string", long(2**62) + b"x"),
    ("bytes", long(2**40)),
    ("bytes", long(900_000) + b"\\x00" * 900_000),
    ("long", b"\\xff" * 990_000),
]:
    schema = parse_event_schema(json.dumps(record(("a", type_))))
    refuse(Renderer(schema, 999_000).render, datum)

# Batches: counts, and lists without end in the metadata of one event.
header = batch_schema(PUBLISHING, "1").header
refuse(read_publishing_batch, header + long(2**62) + b"\\x00" * 100, 100_000)
refuse(read_publishing_batch, header + long(40_000_000) + b"\\x00" * 50_000_000, 100_000)
metadata = b"\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00"
keys = b"\\x02" + long(40_000_000) + b"\\x00" * 45_000_000
refuse(read_publishing_batch, header + b"\\x02" + metadata + keys, 100_000)
print(refused, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begin) * 1024)
"""


def test_the_most_hostile_data_are_rejected_in_bounded_memory():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    refused, grown = map(int, done.stdout.split())
    assert refused == 18
    assert grown < BYTES_MAX
