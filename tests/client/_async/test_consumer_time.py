"""A day with a broker that fails again and again, in a simulated clock."""

import asyncio
import random
import selectors

import pytest

from rioni.client import AsyncClient
from tests.support.campaigns import length
from tests.support.simulated_broker import ID, SimulatedBroker


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
    """Runs tasks that do no I/O, in its own time that begins with 0."""

    def __init__(self) -> None:
        self._clock = _JumpingSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now_s


DAY_S = 86_400
SEEDS = length(1, 20)


async def day(broker, *, concurrency):
    async with AsyncClient("http://simulated", token=broker.token) as client:
        await client._transport._http.aclose()
        client._transport._http = broker
        consumer = client.subscription(ID, batch_limit=5, max_uncommitted_events=30, batch_flush_timeout=30)

        async def handle(event):
            broker.partitions[event.partition].handle(event.data["n"])
            await asyncio.sleep(broker.random.choice((0, 0, 0.1, 3)))

        async def end():
            await broker.publish(DAY_S, every_s=20)
            broker.unavailable_until_s = 0
            for _ in range(1_000):
                await asyncio.sleep(10)
                if all(each.committed >= max(each.positions, default=-1) for each in broker.partitions.values()):
                    break
            consumer.stop()

        ending = asyncio.create_task(end())
        await consumer.run(handle, concurrency=concurrency)
        await ending


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_day_of_reconnects_loses_nothing_and_keeps_the_order(seed):
    # The client's waiting times are random; here they are the same in each run.
    random.seed(seed)
    broker = SimulatedBroker(seed)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(day(broker, concurrency=2))
    for partition in broker.partitions.values():
        assert len(partition.positions) > 1_000
        assert partition.handled.issuperset(partition.positions)
        assert partition.committed == partition.positions[-1]
    # Everything that may happen has happened, and no broker was asked in a loop.
    for each in ("opened", "401", "409", "429", "500", "503", "asked to wait", "no connection", "commit failed"):
        assert broker.counts[each], each
    assert broker.counts["answer lost"] + broker.counts["commit refused"]
    asked = sorted(broker.requests_s)
    assert all(later - earlier >= 1 for earlier, later in zip(asked, asked[20:], strict=False))
