"""Divides the stream memory of a process equally among its streams."""


class StreamMemory:
    """Events that wait in the streams of one process until their batches are full or their windows open."""

    def __init__(self, bytes_max: int = 500_000_000) -> None:
        self._bytes_max = bytes_max
        self._streams = 0

    def open(self) -> None:
        """Count a stream more."""
        self._streams += 1

    def close(self) -> None:
        """Count a stream less."""
        self._streams -= 1

    def share(self) -> int:
        """How many bytes each of the open streams may hold now; what it holds already it sends sooner."""
        return self._bytes_max // max(1, self._streams)
