"""Committed progress of a subscription's partition, as its node stores it, and its changes. Pure."""

from collections.abc import Callable

import msgspec

from rioni.domain.ports.coordinator import DeliveryFailure


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the node of a partition holds."""

    offset: str
    """Of the last event committed."""
    failures: int = 0
    """Owners that ended with uncommitted events since it advanced; without one that has just ended: see `settled`."""
    sent: str = ""
    """Offset up to which events were sent, as far as that is noted."""
    term: int = 0
    """The term of the owner that awaits their commit; 0 where none does."""
    search_until: str = ""
    """Offset up to which events are sent one at a time."""
    heartbeats: int = 0
    """How often the offset that was committed already was committed again."""

    def encoded(self) -> bytes:
        """As it is stored."""
        return msgspec.json.encode(self)

    def settled(self, term: int) -> "Progress":
        """With the failure of an owner that has ended.

        Nothing is written when a stream ends: who comes later sees that the partition is in another term.
        """
        if not self.term or self.term == term:
            return self
        return msgspec.structs.replace(self, failures=self.failures + (self.sent > self.offset), term=0)

    def advanced(self, offset: str, term: int) -> "Progress":
        """With an offset that is ahead, committed by the owner of a term."""
        return msgspec.structs.replace(self.settled(term), offset=offset, failures=0)

    def confirmed(self) -> "Progress":
        """With the committed offset committed again."""
        return msgspec.structs.replace(self, heartbeats=self.heartbeats + 1)

    def attempted(self, offset: str, term: int, search_until: str | None) -> "Progress":
        """With what the owner of a term is about to send."""
        known = self.settled(term)
        if search_until is None:
            return msgspec.structs.replace(known, sent=offset, term=term)
        return msgspec.structs.replace(known, failures=0, sent=offset, term=term, search_until=search_until)

    def trouble(self, term: int) -> DeliveryFailure | None:
        """What the port tells of it; None where all is well."""
        known = self.settled(term)
        if known.failures > 0 or known.search_until > known.offset:
            return DeliveryFailure(known.failures, known.sent, known.search_until)
        return None


decode: Callable[[bytes], Progress] = msgspec.json.Decoder(Progress).decode
