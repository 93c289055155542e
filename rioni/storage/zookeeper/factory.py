"""Creates the ZooKeeper-backed adapters of a cluster, if the driver is installed."""

from collections.abc import Callable
from typing import Any, NamedTuple

from rioni.domain.errors import Unavailable
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.leadership import Leadership
from rioni.domain.ports.notifier import Notifier
from rioni.domain.ports.quota import ConnectionQuota
from rioni.files.extras import requirement
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.zookeeper.session.options import ZooKeeperOptions


NO_OPTIONS = ZooKeeperOptions()


class Shared(NamedTuple):
    """Adapters that share state with other processes. Close them in their order of dependency."""

    coordinator: Coordinator
    """Closed last, except for the signals: the ZooKeeper session ends with it."""
    quota: ConnectionQuota
    leadership: Leadership
    signals: Notifier
    publish_position: Callable[[int], None] = lambda _position: None
    """Publishes this process's position in the log for operators; call it regularly, cheap."""
    claim: Callable[[str, int | None], int] = lambda _installation, _mark: 0
    """Claims the shared state for an installation; see `PathMark.claim`. Blocks."""
    advance: Callable[[str], int | None] = lambda _installation: None
    """Raises the sequence number of the shared state; see `PathMark.advance`."""


def open_shared(
    hosts: str, local: EmbeddedSignals, *, session_timeout_s: int = 10, options: ZooKeeperOptions = NO_OPTIONS
) -> Shared:
    """Start a ZooKeeper session; blocks until a server answers. A forked process must start its own.

    Args:
        hosts: `host:port`, separated by commas, followed by the path that contains all nodes.
        local: notifies the processes of this machine.
        session_timeout_s: after this time without heartbeats, other processes take over this process's partitions.
        options: credentials and certificates.

    Raises:
        Unavailable: the driver is not installed, no server answers, or authentication failed.
    """
    try:
        from kazoo.security import make_acl  # noqa: PLC0415 - an extra

        from rioni.storage.zookeeper.coordination import ZooKeeperCoordinator  # noqa: PLC0415 - as above
        from rioni.storage.zookeeper.leadership import ZooKeeperLeadership  # noqa: PLC0415 - as above
        from rioni.storage.zookeeper.path_mark import PathMark  # noqa: PLC0415 - as above
        from rioni.storage.zookeeper.quota import ZooKeeperConnectionQuota  # noqa: PLC0415 - as above
        from rioni.storage.zookeeper.session.session import ZooKeeperSession  # noqa: PLC0415 - as above
        from rioni.storage.zookeeper.signals import ZooKeeperSignals  # noqa: PLC0415 - as above
    except ImportError as ex:
        raise Unavailable(f"The setting `zookeeper` needs a driver: pip install {requirement('cluster')}") from ex
    driver: dict[str, Any] = {}
    if options.user:
        acl = make_acl("auth", "", all=True)
        driver |= {"auth_data": [("digest", f"{options.user}:{options.password}")], "default_acl": [acl]}
    if options.ca:
        driver |= {"use_ssl": True, "ca": options.ca, "check_hostname": True}
    if options.certificate:
        driver |= {"certfile": options.certificate, "keyfile": options.key}
    clock = SystemClock()
    session = ZooKeeperSession(hosts, clock=clock, session_timeout_s=session_timeout_s, **driver)
    signals, mark = ZooKeeperSignals(session, local), PathMark(session)
    coordinator = ZooKeeperCoordinator(session, signals.cache, clock=clock, watch=signals.watch)
    return Shared(
        coordinator,
        ZooKeeperConnectionQuota(session, clock),
        ZooKeeperLeadership(session),
        signals,
        session.publish_position,
        mark.claim,
        mark.advance,
    )
