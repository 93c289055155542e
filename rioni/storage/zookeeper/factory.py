"""Creates the ZooKeeper-backed adapters of a cluster, if the driver is installed, with their options."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rioni.domain.errors import Unavailable
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.host import ConnectionQuota, Leadership, Notifier
from rioni.files.extras import requirement
from rioni.files.plain import read_toml_of
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.signals import EmbeddedSignals


# --- Reads the client options of ZooKeeper from the file in the setting `zookeeper_options` ---


class ZooKeeperOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The options of the file."""

    user: str = ""
    """Created nodes are accessible only to this user; if empty, to all clients."""
    password: str = ""
    ca: str = ""
    """A PEM file with the CA certificates of the servers; enables TLS."""
    certificate: str = ""
    """A PEM file with the client certificate, for servers that require one."""
    key: str = ""
    """A PEM file with the key of the client certificate."""


def read_options(path: Path | None) -> ZooKeeperOptions:
    """Read the file, if one is set; blocks on the disk. No error shows a value, as that may be a password.

    Raises:
        Unavailable: it can't be read, or contains anything else.
    """
    if path is None:
        return ZooKeeperOptions()
    try:
        options = msgspec.convert(read_toml_of("zookeeper_options", path), ZooKeeperOptions)
    except msgspec.ValidationError as ex:
        names = ", ".join(ZooKeeperOptions.__struct_fields__)
        raise Unavailable(f"zookeeper_options: invalid option in {path}: {ex}. Allowed (strings): {names}.") from ex
    for name, needed in (("user", "password"), ("password", "user"), ("certificate", "key"), ("key", "certificate")):
        if getattr(options, name) and not getattr(options, needed):
            raise Unavailable(f"zookeeper_options: {path} sets {name}, which needs {needed}.")
    if options.certificate and not options.ca:
        raise Unavailable(
            f"zookeeper_options: {path} sets certificate, which needs ca: client certificates are only used with TLS."
        )
    return options


# --- Creates the ZooKeeper-backed adapters of a cluster, if the driver is installed ---

NO_OPTIONS = ZooKeeperOptions()


class SharedClients(NamedTuple):
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
) -> SharedClients:
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
        from rioni.storage.zookeeper.leadership import PathMark, ZooKeeperLeadership  # noqa: PLC0415 - as above
        from rioni.storage.zookeeper.quota import ZooKeeperConnectionQuota  # noqa: PLC0415 - as above
        from rioni.storage.zookeeper.session import ZooKeeperSession  # noqa: PLC0415 - as above
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
    return SharedClients(
        coordinator,
        ZooKeeperConnectionQuota(session, clock),
        ZooKeeperLeadership(session),
        signals,
        session.publish_position,
        mark.claim,
        mark.advance,
    )
