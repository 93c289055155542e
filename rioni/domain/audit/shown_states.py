"""States of the log as auditors see them."""

from typing import Any

import msgspec

from rioni.domain.system.storage_configuration import kept_configuration


STORAGE = "storage"


def shown_state(kind: str, body: str | None) -> Any:
    """A state, without what other answers of the broker leave out as well.

    Args:
        kind: of the resource.
        body: the state as JSON; None where there is none.
    """
    if body is None:
        return None
    state = msgspec.json.decode(body)
    if kind == STORAGE and "configuration" in state:
        state["configuration"] = kept_configuration(state["configuration"] or {})
    return state
