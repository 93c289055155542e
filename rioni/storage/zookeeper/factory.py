"""Creates the ZooKeeper-backed adapters of a cluster, where the driver is installed."""

from collections.abc import Callable
from typing import Any, NamedTuple

from rioni.domain.errors import Unavailable
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.leadership import Leadership
from rioni.domain.ports.notifier import Notifier
from rioni.domain.ports.quota import ConnectionQuota
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.zookeeper.session.options import Options


NO_OPTIONS = Options()


class Shared(NamedTuple):
    """What a worker process shares with those of all nodes. To be closed in the order in which it needs each other."""

    coordinator: Coordinator
    """Closed last but for the signals: the session with ZooKeeper ends with it."""
    slots: ConnectionQuota
    leadership: Leadership
    signals: Notifier
    report: Callable[[int], None] = lambda _position: None
    """Tells operators how far this process has followed the log; to be called now and then, cheap."""
    claim: Callable[[str, int | None], int] = lambda _installation, _mark: 0
    """Makes what is shared that of an installation; see `PathMark.claim`. Blocks."""
    advance: Callable[[str], int | None] = lambda _installation: None
    """Raises the sequence number of what is shared; see `PathMark.advance`."""


def open_shared(
    hosts: str, local: EmbeddedSignals, *, session_timeout_s: int = 10, options: Options = NO_OPTIONS
) -> Shared:
    """Begin a session with ZooKeeper; blocks until a server answers. A forked process must begin its own.

    Args:
        hosts: `host:port`, separated by commas, and behind them the path under which everything lies.
        local: wakes the processes of this machine.
        session_timeout_s: after this time without a sign of life others take over what this process has.
        options: credentials and certificates.

    Raises:
        Unavailable: the driver is not installed, no server answers, or none lets this process in.
    """
    try:
        from kazoo.security import make_acl  # noqa: PLC0415 - an extra

        from rioni.storage.zookeeper.coordination import ZooKeeperCoordinator  # noqa: PLC0415 - as above
        from rioni.storage.zookeeper.leadership import ZooKeeperLeadership  # noqa: PLC0415 - as above
        from rioni.storage.zookeeper.path_mark import PathMark  # noqa: PLC0415 - as above
        from rioni.storage.zookeeper.session.session import ZooKeeperSession  # noqa: PLC0415 - as above
        from rioni.storage.zookeeper.signals import ZooKeeperSignals  # noqa: PLC0415 - as above
        from rioni.storage.zookeeper.slots import ZooKeeperSlots  # noqa: PLC0415 - as above
    except ImportError as ex:
        raise Unavailable("The setting `zookeeper` needs a driver: pip install 'rioni[cluster]'") from ex
    driver: dict[str, Any] = {}
    if options.user:
        acl = make_acl("auth", "", all=True)
        driver |= {"auth_data": [("digest", f"{options.user}:{options.password}")], "default_acl": [acl]}
    if options.ca:
        driver |= {"use_ssl": True, "ca": options.ca, "check_hostname": True}
    if options.certificate:
        driver |= {"certfile": options.certificate, "keyfile": options.key}
    clock = SystemClock()
    keeper = ZooKeeperSession(hosts, clock=clock, session_timeout_s=session_timeout_s, **driver)
    signals, mark = ZooKeeperSignals(keeper, local), PathMark(keeper)
    coordinator = ZooKeeperCoordinator(keeper, signals.known, clock=clock, watch=signals.watch)
    return Shared(
        coordinator,
        ZooKeeperSlots(keeper, clock),
        ZooKeeperLeadership(keeper),
        signals,
        keeper.report,
        mark.claim,
        mark.advance,
    )
