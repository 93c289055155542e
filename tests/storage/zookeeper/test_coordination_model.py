"""Three nodes, compared with a plain model, while their connections break and their sessions end."""

from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rioni.domain.errors import Conflict, Invalid
from rioni.domain.timelines.position import EventTypePartition
from tests.contracts.coordination import ALL, offset
from tests.storage.zookeeper.test_coordination_faults import SESSION_TIMEOUT_S, expire
from tests.support.waiting import wait_until


NODES = 3
KEYS = list(ALL)

nodes = st.integers(0, NODES - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("join"), nodes),
        st.tuples(st.just("leave"), nodes, st.integers(0, 5)),
        st.tuples(st.just("commit"), nodes, st.integers(0, 5), st.sampled_from(KEYS), st.integers(-1, 9)),
        st.tuples(st.just("release"), nodes, st.integers(0, 5)),
        st.tuples(st.just("read"), nodes),
        st.tuples(st.sampled_from(["disconnect", "disconnect", "expire"]), nodes),
    ),
    max_size=30,
)


class Model:
    """The expected state, which every node must show."""

    def __init__(self, processes) -> None:
        self.processes = processes
        self.subscription = str(uuid4())
        self.streams: list[str] = []
        self.alive: dict[str, int] = {}
        self.offsets = dict(ALL)
        processes[0].coordinator.initialise(self.subscription, ALL)

    def at(self, node: int):
        return self.processes[node].coordinator

    def stream(self, number: int) -> str:
        return self.streams[number % len(self.streams)] if self.streams else "nobody"

    def join(self, node: int) -> None:
        stream = str(uuid4())
        if len(self.alive) == len(KEYS):
            with pytest.raises(Conflict):
                self.at(node).join(self.subscription, stream)
            return
        self.at(node).join(self.subscription, stream)
        self.streams.append(stream)
        self.alive[stream] = node

    def leave(self, node: int, number: int) -> None:
        self.at(node).leave(self.subscription, self.stream(number))
        self.alive.pop(self.stream(number), None)

    def commit(self, node: int, number: int, key: EventTypePartition, position: int) -> None:
        stream = self.stream(number)
        # Nothing else changes concurrently: the answer of one connected node is the truth.
        owners = self.settled(node)
        if stream not in self.alive or owners[key].session != stream:
            with pytest.raises(Invalid):
                self.at(node).commit(self.subscription, stream, [(key, offset(position))])
            return
        advances = offset(position) > self.offsets[key]
        assert self.at(node).commit(self.subscription, stream, [(key, offset(position))]) == [advances]
        self.offsets[key] = max(self.offsets[key], offset(position))

    def release(self, node: int, number: int) -> None:
        self.at(node).release(self.subscription, self.stream(number), *KEYS)

    def read(self, node: int) -> None:
        owners = self.settled(node)
        assert {owner.session for owner in owners.values()} <= {*self.alive, ""}
        if self.alive:
            assert all(owner.session for owner in owners.values())
        # A live stream owns its partitions until it releases them.
        for owner in owners.values():
            assert self.at(self.alive[owner.session]).owns(owner.session) if owner.session else True

    def disconnect(self, node: int) -> None:
        self.processes[node].session.handler.disconnect()

    def expire(self, node: int) -> None:
        session = self.processes[node].session
        wait_until(lambda: session.connected)
        worker = session.worker
        mine = [stream for stream, owner in self.alive.items() if owner == node]
        expire(self.processes[node])
        wait_until(lambda: session.worker != worker and session.is_session_safe())
        for stream in mine:
            assert not self.at(node).owns(stream)
            del self.alive[stream]

    def settled(self, node: int):
        """The owners of partitions, once a node has caught up; its own streams need not wait for that."""
        coordinator = self.at(node)
        wait_until(lambda: self.sessions(coordinator) == {*self.alive})
        wait_until(lambda: coordinator.cursors(self.subscription) == self.offsets)
        return coordinator.topology(self.subscription).partitions

    def sessions(self, coordinator) -> set[str]:
        for process in self.processes:
            process.coordinator.expire_dead_sessions()  # as every process does all the time
        return {*coordinator.topology(self.subscription).sessions}


@pytest.fixture
def processes(hosts, start_at):
    started = [start_at(hosts, SESSION_TIMEOUT_S) for _ in range(NODES)]
    yield started
    for process in started:
        process.close()


# The driver's threads use random numbers while an example is being generated.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning")
@pytest.mark.zookeeper
@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=steps)
def test_despite_failures_all_nodes_agree_and_no_commit_is_lost(processes, steps):
    model = Model(processes)
    for step, *arguments in steps:
        getattr(model, step)(*arguments)
    for node in range(NODES):
        model.read(node)
    for stream in [*model.alive]:
        model.leave(0, model.streams.index(stream))
    processes[0].coordinator.delete(model.subscription)

    def is_over() -> bool:
        coordinator = processes[1].coordinator
        return model.sessions(coordinator) == set() and model.subscription not in coordinator.initialised()

    wait_until(is_over)
