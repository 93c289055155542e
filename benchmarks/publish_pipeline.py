"""The pure rules of publishing: microseconds for a batch of 100 events, by phase and by size of an event.

Run it with `python -m benchmarks.publish_pipeline`. Each figure is the best of several rounds.
"""

import argparse
import json
import timeit
from random import Random
from uuid import UUID

from rioni.domain.event_types.event_type import EventTypeSpec, SubmittedSchema
from rioni.domain.event_types.rules import new
from rioni.domain.limits import Limits
from rioni.domain.publishing.batch import Batch, split
from rioni.domain.publishing.enrichment import enrich
from rioni.domain.publishing.partitioning import _short_hash, assign
from rioni.domain.publishing.pipeline import prepare, validate
from rioni.domain.publishing.rules import Publication, PublishRules


EVENTS = 100
SIZES = (200, 1_000, 10_000)
ROUNDS, RUNS = 15, 40
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "order_id": {"type": "string"},
            "price": {"type": "number"},
            "quantity": {"type": "integer"},
            "note": {"type": "string", "maxLength": 100_000},
        },
        "required": ["order_id"],
    }
)


def phases(size: int, *, rounds: int = ROUNDS, runs: int = RUNS) -> dict[str, float]:
    """Microseconds for a batch of `EVENTS` events of `size` bytes, by phase."""
    random = Random(7)
    body = _body(random, size)
    spec = EventTypeSpec(
        name="order.created",
        owning_application="shop",
        category="business",
        compatibility_mode="compatible",
        enrichment_strategies=("metadata_enrichment",),
        partition_strategy="hash",
        partition_key_fields=("order_id",),
        schema=SubmittedSchema(type="json_schema", schema=SCHEMA),
    )
    rules = PublishRules.of(new(spec, now="2024-01-01T00:00:00.000Z", limits=Limits()), partitions=8)
    publication = Publication(
        received_at="2023-11-14T22:13:20.000Z", flow_id="a-flow-id-of-24-characte", publisher="shop"
    )
    batch = split(body)
    partitions = assign(batch.values, rules.choose, rules.partitions, random)
    measured = {
        "parse": lambda: split(body),
        "validate": lambda: validate(batch, rules.validator, rules.limits, reached="none"),
        "partition, keys seen before": lambda: assign(batch.values, rules.choose, rules.partitions, random),
        "partition, new keys": lambda: _with_new_keys(batch, rules, random),
        "enrich": lambda: enrich(batch.raw, batch.values, partitions, rules, publication),
        "all of it": lambda: prepare(split(body), rules, publication, random),
    }
    return {
        name: min(timeit.repeat(phase, number=runs, repeat=rounds)) / runs * 1e6 for name, phase in measured.items()
    }


def _with_new_keys(batch: Batch, rules: PublishRules, random: Random) -> None:
    _short_hash.cache_clear()
    assign(batch.values, rules.choose, rules.partitions, random)


def _body(random: Random, size: int) -> bytes:
    def event(note: str) -> dict[str, object]:
        return {
            "metadata": {"eid": str(UUID(int=random.getrandbits(128))), "occurred_at": "2024-01-02T03:04:05.123Z"},
            "order_id": str(UUID(int=random.getrandbits(128))),
            "price": round(random.uniform(1, 1000), 2),
            "quantity": random.randrange(10),
            "note": note,
        }

    note = "x" * max(0, size - len(json.dumps(event(""), separators=(",", ":"))))
    return json.dumps([event(note) for _ in range(EVENTS)], separators=(",", ":")).encode()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="bytes of an event")
    columns = [phases(size) for size in parser.parse_args().sizes]
    print(f"µs for a batch of {EVENTS} events\n{'':<30}{''.join(f'{size:>9,} B' for size in SIZES)}")
    for name in columns[0]:
        print(f"{name:<30}{''.join(f'{column[name]:>11.0f}' for column in columns)}")


if __name__ == "__main__":
    main()
