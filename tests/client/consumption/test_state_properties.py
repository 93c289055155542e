"""Whatever happens in whatever order: nothing is lost, order is kept, and what is committed is not handled again."""

import itertools
import random
from collections import deque

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rioni.client import Batch, Cursor, EventBatch
from rioni.client.consumption.events import StreamPartition
from rioni.client.consumption.lanes import Revoked
from rioni.client.consumption.options import POLICIES, Options
from rioni.client.consumption.state import IDLE_S, ConsumptionState
from tests.support.subscription_model import OTHER, PartitionModel, offset_of, position_of


NAMES = ("0", "1")


class Walk:
    """The state of a consumer, the broker as a model, and at random what threads would do between them."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        choose = self.random.choice
        self.dense = choose((True, False))
        self.options = Options(
            commit=choose(POLICIES), commit_interval_s=5, max_uncommitted_events=choose((4, 1_000)), keep_alive_s=100
        )
        self.state = ConsumptionState(self.options, None, self.mark_until)
        self.partitions = {name: PartitionModel() for name in NAMES}
        self.now_s, self.numbers = 0.0, itertools.count()
        self.session = self.stream = self.answer = None
        self.wire = deque()
        self.in_hand, self.unmarked, self.assigned, self.left = [], [], set(), set()

    def step(self):
        """Something happens."""
        steps = (
            self.send,
            self.deliver,
            self.handle,
            self.handle,
            self.commit,
            self.commit,
            self.pass_time,
            self.mark,
            self.rarely,
        )
        if self.session is None:
            self.open()
        self.random.choice(steps)()

    def rarely(self):
        self.random.choice((self.close, self.move_away, self.come_back, self.come_back, self.fail))()

    # --- the broker ---

    def open(self):
        """A stream is opened; it gets partitions of former ones, or these wait for commits."""
        self.stream = f"stream-{next(self.numbers)}"
        self.left.clear()
        committed = {StreamPartition("e", name): offset_of(each.committed) for name, each in self.partitions.items()}
        known = committed if self.random.random() < 0.7 else {}
        self.session = self.state.opened(self.stream, known, self.now_s)
        for partition in self.partitions.values():
            if partition.outstanding == 0 or self.random.random() < 0.5:
                partition.assign(self.stream)

    def send(self):
        """Publish and send events; a keep-alive without events."""
        name = self.random.choice(NAMES)
        partition = self.partitions[name]
        for _ in range(self.random.randrange(5)):
            partition.publish(1 if self.dense else self.random.choice((1, 3)))
        if partition.owner == self.stream:
            self.receive(name, partition.next_events(self.random.randint(1, 4)))

    def deliver(self):
        """Something arrives that was sent."""
        if self.wire:
            self.state.received(self.session, self.wire.popleft(), self.now_s)

    def receive(self, name, events):
        cursor = Cursor(event_type="e", partition=name, offset=offset_of(self.partitions[name].sent), cursor_token="t")
        batch = Batch(cursor=cursor, events=[msgspec.Raw(str(position).encode()) for position in events])
        self.wire.append(batch)
        if self.random.random() < 0.7:
            self.deliver_all()

    def deliver_all(self):
        while self.wire:
            self.deliver()

    def close(self):
        if self.session is not None:
            orderly = self.random.random() < 0.5
            if orderly:
                self.deliver_all()
            self.wire.clear()
            self.state.closed(self.session, self.now_s, orderly=orderly)
            self.session = None

    def move_away(self):
        """The time to commit is over, and the partition goes to another consumer, which handles some events."""
        name = self.random.choice(NAMES)
        partition = self.partitions[name]
        if partition.owner == self.stream:
            self.left.add(name)
        partition.assign(OTHER)
        if events := partition.next_events(self.random.randrange(4)):
            partition.handled.update(events)
            assert partition.commit(OTHER, events[-1])

    def come_back(self):
        for name, partition in self.partitions.items():
            # With gaps, a stream can't recognise events that it gets again before it has handled them.
            if partition.owner != self.stream and (self.dense or name not in self.left):
                partition.assign(self.stream)

    # --- the application ---

    def take(self):
        """Take items up to a batch; notify the application of partitions on the way."""
        while len(self.in_hand) < 2 and (item := self.state.take()) is not None:
            partition = item.progress.partition
            assert partition not in {batch.progress.partition for batch, _ in self.in_hand}
            if isinstance(item, EventBatch):
                assert partition in self.assigned
                assert not item.dropped
                self.in_hand.append([item, item.handled])
                return
            # Assignments and revocations of a partition alternate.
            assert (partition in self.assigned) == isinstance(item, Revoked)
            self.assigned ^= {partition}
            self.state.release(item)

    def handle(self):
        """Some events of a batch are handled; when it is finished or not wanted any more, it is put down."""
        self.take()
        if self.in_hand:
            self.handle_some(self.random.choice(self.in_hand), self.random.randrange(4))

    def handle_some(self, hand, count):
        batch = hand[0]
        for _ in range(count):
            hand[1] = max(hand[1], batch.handled)
            if batch.dropped or hand[1] >= len(batch):
                break
            self.partitions[batch.partition].handle(int(bytes(batch.json[hand[1]])))
            hand[1] += 1
            if self.options.commits_itself:
                batch.handled = hand[1]
        if batch.dropped or max(hand[1], batch.handled) == len(batch):
            self.put_down(hand)

    def put_down(self, hand):
        self.in_hand.remove(hand)
        self.state.release(hand[0])
        if not self.options.commits_itself:
            self.unmarked.append(hand)

    def mark(self):
        """With manual commits the application says what is handled, maybe long after."""
        if not self.options.commits_itself and (marked := [*self.unmarked[-9:], *self.in_hand]):
            batch, given = self.random.choice(marked)
            if given:
                list(batch)[given - 1].commit()

    def mark_until(self, batch, count):
        self.state.handled(batch, count)

    def fail(self):
        """An event can't be handled, and is left to the broker."""
        if self.in_hand:
            hand = self.random.choice(self.in_hand)
            if self.state.fail(hand[0]) is self.session is not None:
                self.close()
            self.put_down(hand)

    # --- time and commits ---

    def pass_time(self):
        self.now_s += self.random.choice((0.01, 0.01, 5.0, 20.0, 200.0))

    def commit(self):
        """A commit is sent, or the one that is under way is answered."""
        if self.state.broken(self.now_s):
            self.close()
        if self.answer is not None:
            self.answered()
        elif (commit := self.state.due(self.now_s)) is None:
            assert self.state.due_at_s(self.now_s) > self.now_s
        else:
            self.send_commit(commit, self.random.choice(("answered", "answered", "lost before", "lost after")))

    def answered(self):
        if self.answer is not None:
            (answer, self.answer) = (self.answer, None)
            answer()

    def send_commit(self, commit, outcome="answered"):
        if outcome == "lost before":
            self.answer = lambda: self.state.not_committed(commit, self.now_s)
            return
        places = [self.place(cut) for cut in commit.cuts]
        accepted = all(self.partitions[name].owner == commit.session.stream_id for name, _ in places)
        # Brokers need not know cursors inside a batch.
        accepted &= not any(cut.events for cut in commit.cuts) or self.random.random() < 0.9
        if accepted:
            assert all(self.partitions[name].commit(commit.session.stream_id, position) for name, position in places)
        if outcome == "lost after":
            self.answer = lambda: self.state.not_committed(commit, self.now_s)
        elif accepted:
            self.answer = lambda: self.accept(commit, places)
        else:
            self.answer = lambda: self.refuse(commit)

    def accept(self, commit, places):
        for cut, (name, position) in zip(commit.cuts, places, strict=True):
            # A heartbeat may repeat what another consumer has committed.
            if cut.cursor:
                self.partitions[name].acknowledged = max(self.partitions[name].acknowledged, position)
        self.state.committed(commit, self.now_s)

    def refuse(self, commit):
        if len(commit.cuts) == 1:
            self.state.refused(commit, "refused")
            return
        for single in commit.one_by_one():
            self.send_commit(single)
            self.answered()

    def place(self, cut):
        name = cut.progress.partition.partition
        return name, position_of(cut.cursor.offset) if cut.cursor else self.partitions[name].committed

    def check(self):
        """Check the invariants."""
        for session in self.state._sessions:
            batches = [batch for each in session.partitions.values() for batch in each.batches]
            assert session.waiting == sum(map(len, batches))
            assert 0 <= session.handled <= session.waiting
            assert session.open or session.partitions

    # --- the end ---

    def finish(self):
        """Everything is handled and committed in the end, and nothing is left."""
        self.close()
        self.open()
        for _ in range(200):
            if self.state.broken(self.now_s):
                self.close()
                self.open()
            self.deliver_all()
            for hand in list(self.in_hand):
                self.handle_some(hand, 4)
            self.take()
            self.come_back()
            for name, partition in self.partitions.items():
                if partition.owner == self.stream and not partition.outstanding:
                    self.receive(name, partition.next_events(5))
            for batch, count in [*self.unmarked, *self.in_hand]:
                self.state.handled(batch, count)
            self.now_s += 5
            self.answered()
            if (commit := self.state.due(self.now_s)) is not None:
                self.send_commit(commit)
        for partition in self.partitions.values():
            assert partition.handled.issuperset(partition.positions)
            assert partition.committed >= max(partition.positions, default=-1)

    def stop(self):
        """It may stop at any time: handled events are committed, and the application is notified."""
        self.state.stop()
        if self.session is not None:
            self.send()
        for hand in list(self.in_hand):
            self.put_down(hand)
        for _ in range(2 * len(NAMES)):
            if (item := self.state.take()) is not None:
                assert isinstance(item, Revoked)
                self.assigned.remove(item.progress.partition)
                self.state.release(item)
        self.state.end(self.now_s)
        for _ in range(4 * len(NAMES)):
            self.answered()
            if (commit := self.state.due(self.now_s + 1)) is not None:
                self.send_commit(commit)
        self.answered()
        assert self.state.settled
        assert not self.state._sessions
        assert not self.assigned
        assert self.state.due_at_s(0.0) == IDLE_S


@given(seed=st.integers(0, 2**32), steps=st.sampled_from((5, 30, 100, 300)), finishes=st.booleans())
def test_nothing_is_lost_and_nothing_handled_again_without_reason(seed, steps, finishes):
    # More walks than the examples of Hypothesis, as one takes a millisecond.
    for number in range(10):
        walk = Walk(f"{seed}-{number}")
        for _ in range(steps):
            walk.step()
            walk.check()
        if finishes:
            walk.finish()
        walk.stop()
