"""Limits that domain rules check, as one value made from the configuration."""

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Upper and lower bounds; `rioni.config.settings` holds the defaults."""

    retention_min_ms: int = 10_800_000
    retention_max_ms: int = 345_600_000
    retention_default_ms: int = 172_800_000
    partitions_default: int = 1
    partitions_max: int = 8
    owning_applications: str = ".*"
    """A regular expression for the names of all applications."""
    subscription_partitions_max: int = 100
    event_bytes_max: int = 999_000
    body_bytes_max: int = 50_000_000
    batch_events_max: int = 100_000
    batch_values_max: int = 2_000_000
