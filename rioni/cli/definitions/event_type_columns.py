"""What people see of event types in tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rioni.cli.terminal.tables import Column


DAY_MS = 86_400_000


def _partitioning(item: Any) -> str:
    fields = ", ".join(item["partition_key_fields"])
    return (
        f"{item['partition_strategy']} of {fields}"
        if item["partition_strategy"] == "hash"
        else item["partition_strategy"]
    )


def _retention(item: Any) -> str | None:
    retention = item["options"].get("retention_time")
    return None if retention is None or item["cleanup_policy"] == "compact" else f"{retention / DAY_MS:.3g} days"


def attributes_of(item: Any, kind: str) -> str:
    """Who is in a list of the authorization section."""
    section = item["authorization"]
    return (
        "everybody" if section is None else ", ".join(f"{each['data_type']}:{each['value']}" for each in section[kind])
    )


def pairs_of(values: Mapping[str, str]) -> Sequence[str]:
    """Labels or annotations."""
    return [f"{name}={value}" for name, value in values.items()]


MEMBERS: dict[str, Column] = {
    "name": "name",
    "owning application": "owning_application",
    "category": "category",
    "partitions by": _partitioning,
    "parallelism": lambda item: (item["default_statistic"] or {}).get("read_parallelism"),
    "cleanup policy": "cleanup_policy",
    "retention": _retention,
    "compatibility": "compatibility_mode",
    "audience": "audience",
    "admins": lambda item: attributes_of(item, "admins"),
    "readers": lambda item: attributes_of(item, "readers"),
    "writers": lambda item: attributes_of(item, "writers"),
    "labels": lambda item: pairs_of(item["labels"]),
    "annotations": lambda item: pairs_of(item["annotations"]),
    "created": "created_at",
    "changed": "updated_at",
    "schema": lambda item: f"{item['schema']['type']} {item['schema']['version']}",
}
"""What people see of one event type, before its schema."""
COLUMNS: dict[str, Column] = {
    "name": "name",
    "owner": "owning_application",
    "category": "category",
    "partitions by": _partitioning,
    "cleanup": "cleanup_policy",
    "retention": _retention,
    "compatibility": "compatibility_mode",
    "schema": "schema.version",
    "changed": "updated_at",
}
