"""Measure the pure publishing rules: microseconds for a batch of 100 events of 200 bytes, by phase.

Run it with `python -m benchmarks.publish_pipeline`. Each figure is the best of several rounds.
"""

import json
import timeit
from collections.abc import Callable
from random import Random
from uuid import UUID

from rioni.domain import publishing
from rioni.domain.batch import Batch, split
from rioni.domain.enrichment import Enrichment
from rioni.domain.partitioning import _short_hash
from rioni.domain.publishing import PublishRules, prepare


EVENTS = 100
ROUNDS, RUNS = 15, 40
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "order_id": {"type": "string"},
            "price": {"type": "number"},
            "quantity": {"type": "integer"},
            "note": {"type": "string", "maxLength": 100},
        },
        "required": ["order_id"],
    }
)


def main() -> None:
    random = Random(7)
    body = _body(random)
    rules = PublishRules.of(
        name="order.created",
        category="business",
        cleanup_policy="delete",
        compatibility_mode="compatible",
        enrichment_strategies=["metadata_enrichment"],
        partition_strategy="hash",
        partition_key_fields=["order_id"],
        partitions=8,
        schema=SCHEMA,
        schema_version="1.0.0",
    )
    context = {"now_ms": 1_700_000_000_000, "flow_id": "a-flow-id-of-24-characte", "publisher": "shop"}
    enrichment = Enrichment(event_type=rules.name, version=rules.schema_version, **context)
    batch = split(body)
    partitions = publishing._assign(batch.values, rules, random)[0]  # noqa: SLF001 - a phase by itself
    phases = {
        "parse": lambda: split(body),
        "validate": lambda: publishing._first_invalid(batch, rules),  # noqa: SLF001
        "partition, keys seen before": lambda: publishing._assign(batch.values, rules, random),  # noqa: SLF001
        "enrich": lambda: publishing._enriched(batch.raw, batch.values, partitions, enrichment),  # noqa: SLF001
        "prepare, all of it": lambda: prepare(body, rules, **context, random=random),
        "partition, new keys": lambda: _with_new_keys(batch, rules, random),
    }
    print(f"{EVENTS} events, {len(body) // EVENTS} bytes each\n")
    for name, phase in phases.items():
        print(f"{name:<30}{_microseconds(phase):>8.0f} µs")


def _with_new_keys(batch: Batch, rules: PublishRules, random: Random) -> None:
    _short_hash.cache_clear()
    publishing._assign(batch.values, rules, random)  # noqa: SLF001


def _microseconds(phase: Callable[[], object]) -> float:
    return min(timeit.repeat(phase, number=RUNS, repeat=ROUNDS)) / RUNS * 1e6


def _body(random: Random) -> bytes:
    events = [
        {
            "metadata": {"eid": str(UUID(int=random.getrandbits(128))), "occurred_at": "2024-01-02T03:04:05.123Z"},
            "order_id": str(UUID(int=random.getrandbits(128))),
            "price": round(random.uniform(1, 1000), 2),
            "quantity": random.randrange(10),
            "note": "nothing special",
        }
        for _ in range(EVENTS)
    ]
    return json.dumps(events, separators=(",", ":")).encode()


if __name__ == "__main__":
    main()
