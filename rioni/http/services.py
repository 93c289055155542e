"""What the resources of the API work with, put together once per process by bootstrap."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from rioni.commands.bus import Bus
from rioni.commands.cursors import Committer
from rioni.commands.gate import Gate
from rioni.commands.positions import Positions
from rioni.commands.publishing import Publisher
from rioni.config import Config
from rioni.domain.authorization import Attribute
from rioni.domain.limits import Limits
from rioni.domain.ports import Clock, Coordinator, EventStore, Offload, Registry, Signals
from rioni.http.streaming.pump import StreamPorts


P = ParamSpec("P")
T = TypeVar("T")

LOG_KEY = "log"
"""The signal that the internal log has grown."""
STOPPING_KEY = "stopping"
"""The signal that a process is asked to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The collaborators of one worker process."""

    config: Config
    limits: Limits
    default_admin: Attribute
    clock: Clock
    offload: Offload
    bus: Bus
    gate: Gate
    publisher: Publisher
    committer: Committer
    positions: Positions
    registry: Registry
    store: EventStore
    coordinator: Coordinator
    signals: Signals
    read: Callable[..., Any]
    """`read(query, ...)` calls `query(connection, ...)` with a connection to the read models."""
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the process is asked to end: streams say goodbye then."""

    def stream_ports(self) -> StreamPorts:
        """What the streams work with."""
        return StreamPorts(clock=self.clock, store=self.store, signals=self.signals, coordinator=self.coordinator)

    def query(self, query: Callable[Concatenate[Any, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query of `rioni.projections` off the hub."""
        result: T = self.offload(self.read, query, *args, **kwargs)
        return result
