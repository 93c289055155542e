"""A broker for tests: real HTTP, real storage, with faults and time as tests need them. See docs/testing.md.

The fixtures `rioni` and `rioni_broker` of pytest are there wherever the package is installed.
"""

from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from rioni.testing.broker import Broker
    from rioni.testing.process import BrokerError

__all__ = ["Broker", "BrokerError"]


def __getattr__(name: str) -> Any:
    """PERF: pytest loads the plugin in every run, whether a test uses a broker or not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rioni.testing import broker, process  # noqa: PLC0415

    return {"Broker": broker.Broker, "BrokerError": process.BrokerError}[name]
