"""Patches the standard library for gevent, in processes that serve, before anything else is imported.

Reason: gevent has no setting that keeps it from looking for plugins. On an upgrade, look at `gevent.monkey.patch_all`,
which calls the replaced function `gevent.events.notify_and_call_entry_points` for each event.

Versions: gevent>=26.9,<27.
"""

import gc
import sys

from gevent import events, monkey


def patch() -> None:
    """Patch the standard library for gevent. What is imported from then on is no garbage: collection is disabled."""
    # PERF: a tenth of the time until the server runs. The server enables it again.
    gc.disable()
    # PERF: gevent would look for plugins 25 times, among all installed packages: 120 ms for 170 of them.
    events.notify_and_call_entry_points = events.notify  # type: ignore[attr-defined]
    monkey.patch_all()
    # PERF: structlog imports rich, where it can, to colour the tracebacks that the server writes plainly: 40 ms.
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog  # noqa: F401, PLC0415

    del sys.modules["rich"]
