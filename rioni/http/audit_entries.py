"""Renders entries of the audit trail as JSON: what changed, as a patch, and if asked for both states."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from rioni.domain.audit.shown_states import shown_state
from rioni.domain.events import client_parts, realm_of
from rioni.domain.json_patch import json_patch


def rendered(rows: Iterable[Mapping[str, Any]], *, states: bool) -> list[bytes]:
    """The JSON of each entry.

    PERF: 30 µs for 1 kB of states, 5 ms for two of 256 kB: call it in a thread pool.

    Args:
        rows: of the audit log, `before` and `after` as JSON text.
        states: whether to add both.
    """
    return [orjson.dumps(_item(row, states=states)) for row in rows]


def _item(row: Mapping[str, Any], *, states: bool) -> dict[str, Any]:
    kind = row["resource_type"]
    before, after = shown_state(kind, row["before"]), shown_state(kind, row["after"])
    address, user_agent = client_parts(row["client"])
    item = {
        "position": row["position"],
        "recorded_at": row["recorded_at"],
        "actor": row["actor"],
        "address": address,
        "user_agent": user_agent,
        "flow_id": row["flow_id"],
        "kind": row["topic"],
        "resource": f"{kind}:{row['resource']}",
        "changes": json_patch(before, after),
    }
    if realm := realm_of(row["client"]):
        item["realm"] = realm
    return item | {"before": before, "after": after} if states else item
