"""Applies assignment changes: concurrent changes of one subscription are written as one transaction."""

from collections.abc import Callable, Collection, Sequence

from rioni.domain.errors import Overloaded, RioniError
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.thread_pool import direct
from rioni.storage.group_commit import GroupCommit, Job
from rioni.storage.zookeeper import assignment as plans
from rioni.storage.zookeeper.assignment import AssignmentUpdate
from rioni.storage.zookeeper.paths import living_path, plan_path
from rioni.storage.zookeeper.session.driver import REFUSALS
from rioni.storage.zookeeper.session.operations import Operation, begin, delete, put
from rioni.storage.zookeeper.session.session import ZooKeeperSession


CHANGE_TIMEOUT_S = 30.0
"""A change not accepted by ZooKeeper by then is answered with 503."""


class _Change(Job):
    """An assignment change waiting to be written."""

    def __init__(self, subscription_id: str, apply: Callable[[AssignmentUpdate], object]) -> None:
        super().__init__(size=0)
        self.subscription_id, self.apply = subscription_id, apply


class AssignmentWriter:
    """Writes assignments with optimistic concurrency control."""

    def __init__(self, session: ZooKeeperSession, clock: Clock) -> None:
        self._session, self._clock = session, clock
        self._group: GroupCommit[_Change] = GroupCommit(self._write, direct)

    def make(self, subscription_id: str, apply: Callable[[AssignmentUpdate], object]) -> None:
        """Change an assignment, and remove dead sessions.

        Args:
            subscription_id: id of the subscription.
            apply: changes an update, repeatedly after conflicts; a returned list contains operations of the same
                transaction.

        Raises:
            RioniError: what `apply` raises.
            Unavailable: ZooKeeper does not accept the change.
        """
        self._group.submit(_Change(subscription_id, apply), CHANGE_TIMEOUT_S)

    def close(self) -> None:
        """Write pending changes."""
        self._group.close()

    def _write(self, changes: Sequence[_Change]) -> Callable[[], None]:
        """Write changes; those of one subscription in one transaction."""
        by_subscription: dict[str, list[_Change]] = {}
        for change in changes:
            by_subscription.setdefault(change.subscription_id, []).append(change)
        deadline_s = self._clock.monotonic() + CHANGE_TIMEOUT_S
        while by_subscription and self._clock.monotonic() < deadline_s:
            drafts = self._drafts(by_subscription)
            requests = {}
            for subscription_id, draft in drafts.items():
                operations = self._operations(draft, subscription_id, by_subscription[subscription_id])
                if operations:
                    requests[subscription_id] = operations
            written = self._session.transactions(list(requests.values()))
            conflicts = {name for name, done in zip(requests, written, strict=True) if not done}
            by_subscription = {name: by_subscription[name] for name in conflicts}
        for waiting in by_subscription.values():
            for change in waiting:
                change.error = Overloaded("The ZooKeeper transaction failed after repeated conflicts. Try again later.")
        return _done

    def _drafts(self, subscription_ids: Collection[str]) -> dict[str, AssignmentUpdate]:
        requests = []
        for subscription_id in subscription_ids:
            path, living = plan_path(subscription_id), living_path(subscription_id)
            # In this order, and on one connection: the nodes used by the assignment were created before it.
            requests.append(lambda client, path=path: client.get_async(path))
            requests.append(lambda client, living=living: client.get_children_async(living))
        answers = iter(self._session.request_with_retry(*requests))
        drafts = {}
        for subscription_id, stored, living in zip(subscription_ids, answers, answers, strict=True):
            if isinstance(stored, REFUSALS) or isinstance(living, REFUSALS):
                drafts[subscription_id] = AssignmentUpdate(subscription_id, None, -1, ())
            else:
                data, stat = stored
                drafts[subscription_id] = AssignmentUpdate(subscription_id, plans.decode(data), stat.version, living)
        return drafts

    def _operations(self, draft: AssignmentUpdate, subscription_id: str, changes: Sequence[_Change]) -> list[Operation]:
        operations: list[Operation] = []
        for change in changes:
            try:
                change.error = None
                made = change.apply(draft)
                operations += made if isinstance(made, list) else ()
            except RioniError as ex:
                change.error = ex
        assignment = draft.finished()
        if assignment is None:
            return operations
        path, living = plan_path(subscription_id), living_path(subscription_id)
        operations.insert(0, put(path, assignment.encoded(), draft.version))
        for node, begins in draft.created.items():
            operations.append(begin(f"{living}/{node}") if begins else delete(f"{living}/{node}"))
        return operations


def _done() -> None:
    """Do nothing after changes are written."""
