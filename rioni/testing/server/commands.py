"""What tests ask of a broker over its control socket: one JSON object a line, each answered by one line."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rioni.testing.server.faults import Fault


LINE_BYTES_MAX = 1_000_000


class Advance(msgspec.Struct, tag="advance", tag_field="do"):
    """Move the time ahead, and do all that is due then."""

    milliseconds: Annotated[int, Meta(ge=0)]


class AddFault(msgspec.Struct, tag="add_fault", tag_field="do"):
    """Let something happen to the next requests."""

    fault: Fault


class ClearFaults(msgspec.Struct, tag="clear_faults", tag_field="do"):
    """Forget the faults that have not happened."""


class DropConnections(msgspec.Struct, tag="drop_connections", tag_field="do"):
    """Close all connections that are open."""


Command = Advance | AddFault | ClearFaults | DropConnections

decode_command = msgspec.json.Decoder(Command).decode


def line(**members: Any) -> bytes:
    """A line of the protocol."""
    return msgspec.json.encode(members) + b"\n"
