"""An event loop whose clock jumps to the next timer whenever all tasks wait: days pass in seconds."""

import asyncio
import selectors


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits: instead, the clock of the loop moves on."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("all tasks wait for something that never comes")
            self.now_s += max(timeout, 0.0)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Runs tasks that do no I/O, in a time of its own that begins with 0."""

    def __init__(self) -> None:
        self._clock = _JumpingSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now_s
