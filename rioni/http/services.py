"""What the resources of the API work with, put together once per process by bootstrap."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from rioni.commands.attendance import Attendance
from rioni.commands.avro_publishing import AvroPublisher
from rioni.commands.bus import Bus
from rioni.commands.cursors import Committer
from rioni.commands.dead_letters import DeadLetterQueue, DeadLetters
from rioni.commands.gate import Gate
from rioni.commands.measuring import Meters
from rioni.commands.own_event_types import OwnEventTypes
from rioni.commands.positions import Positions
from rioni.commands.publishing import Publisher
from rioni.commands.switching import Switcher
from rioni.config import Config
from rioni.domain.authorization import Attribute
from rioni.domain.coordination_ports import Coordinator
from rioni.domain.limits import Limits
from rioni.domain.ports import Clock, EventStores, Offload, Signals
from rioni.domain.registry_ports import Registry
from rioni.http.authentication import Authentication
from rioni.http.body_budget import BodyBudget
from rioni.http.examination import Examination
from rioni.http.streaming.sharing import Shared
from rioni.http.streaming.slots import StreamSlots
from rioni.http.streaming.surroundings import StreamPorts


P = ParamSpec("P")
T = TypeVar("T")

STOPPING_KEY = "stopping"
"""The signal that a process is asked to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The collaborators of one worker process."""

    config: Config
    limits: Limits
    default_admin: Attribute
    authentication: Authentication
    clock: Clock
    offload: Offload
    """Where the database is waited for."""
    compute: Offload
    """Where something is computed that takes long."""
    bus: Bus
    gate: Gate
    publisher: Publisher
    avro_publisher: AvroPublisher
    own_event_types: OwnEventTypes
    meters: Meters
    committer: Committer
    dead_letters: DeadLetters
    dead_letter_queue: DeadLetterQueue
    positions: Positions
    attendance: Attendance
    switcher: Switcher
    registry: Registry
    stores: EventStores
    coordinator: Coordinator
    bodies: BodyBudget
    stream_slots: StreamSlots
    streams: StreamPorts
    """What all streams work with."""
    refresh_streams: Shared[None]
    """Brings the registry up to date, once for all streams that a notification wakes."""
    signals: Signals
    read: Callable[..., Any]
    """`read(query, ...)` calls `query(connection, ...)` with a connection to the read models."""
    live: Examination
    """Of what is inside this process."""
    ready: Examination
    """Of what requests need."""
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the process is asked to end: streams say goodbye then."""

    def query(self, query: Callable[Concatenate[Any, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query of `rioni.projections` off the hub."""
        result: T = self.offload(self.read, query, *args, **kwargs)
        return result
