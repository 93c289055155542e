"""The settings of the broker on this host, the files with secrets, and the servers, that they name."""

import socket
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from rioni.cli.doctor.diagnosis import ERROR, DoctorFinding, Host, NotLookedAt, Site, check, error, source, warning
from rioni.cli.doctor.machine import DRIVERS, InstalledPackages, Memory
from rioni.config.settings import SETTINGS, Config
from rioni.domain.access.addresses import host_and_port
from rioni.domain.access.authorization import WELL_KNOWN_ADMIN, Mode
from rioni.files.extras import requirement
from rioni.wire.administration import Feature


# --- The settings, and the files with secrets that they name ---

FILES_WITH_SECRETS = ("tls_key", "kafka_options", "zookeeper_options", "log_signing_key")
SIGNING_KEY = "log-signing.key"
"""The name of the file in the data directory, if the setting names no other."""


class SettingsFacts(msgspec.Struct, frozen=True):
    """Whether there are settings, and what may be shown of them."""

    origin: str
    """The owner of the settings, in words."""
    error: str = ""
    """Why they can't be used."""
    values: Mapping[str, tuple[str, str]] = {}
    """Value and source of each, by name; secrets are masked."""

    @property
    def host(self) -> str:
        """The address that the broker listens on, as it may be shown."""
        return self.values["host"][0]


class SecretFile(msgspec.Struct, frozen=True):
    """A file that holds a secret."""

    setting: str
    path: str
    mode: int = 0
    """The permissions of the file."""
    error: str = ""
    """The reason why it can't be examined."""


@source
def settings(site: Site) -> SettingsFacts:
    """Show the settings."""
    host = site.beside_the_broker()
    if host.config is None:
        return SettingsFacts(host.origin, host.error)
    values = {
        name: (setting.show(getattr(host.config, name)), host.sources.get(name, ""))
        for name, setting in SETTINGS.items()
    }
    return SettingsFacts(host.origin, values=values)


@source
def config(site: Site) -> Config:
    """The settings themselves, which are never written anywhere."""
    host = site.beside_the_broker()
    if host.config is None:
        raise NotLookedAt("the settings can't be used")
    return host.config


@source
def secret_files(site: Site) -> list[SecretFile]:
    """Look at the permissions of files with secrets."""
    host = site.beside_the_broker()
    return [_looked_at(name, path) for name, path in _files(host)]


def _files(host: Host) -> Iterator[tuple[str, Path]]:
    for name in FILES_WITH_SECRETS:
        path: Path | None = getattr(host.config, name, None)
        if path is not None:
            yield name, path
        elif name == "log_signing_key" and (host.data / SIGNING_KEY).exists():
            yield name, host.data / SIGNING_KEY


def _looked_at(setting: str, path: Path) -> SecretFile:
    try:
        return SecretFile(setting, str(path), stat.S_IMODE(path.stat().st_mode))
    except OSError as ex:
        return SecretFile(setting, str(path), error=ex.strerror or str(ex))


# --- The servers that the settings name ---

SERVERS_MAX = 16
CONNECT_S = 2.0
PORTS = {"postgresql": 5432, "http": 80, "https": 443}
"""Ports by scheme, for URLs that name none."""


class NamedServer(msgspec.Struct, frozen=True):
    """A server that a setting names."""

    setting: str
    address: str
    error: str = ""
    """Why it can't be connected to."""


@source
def servers(site: Site, config: Config) -> list[NamedServer]:
    """Connect to each of them, and disconnect at once."""
    found = []
    for setting, host, port in list(addresses(config))[:SERVERS_MAX]:
        if not site.deadline.left_s:
            break
        problem = ""
        try:
            socket.create_connection((host, port), timeout=CONNECT_S).close()
        except OSError as ex:
            problem = ex.strerror or str(ex)
        found.append(NamedServer(setting, host_and_port(host, port), problem))
    if not found:
        raise NotLookedAt("the settings name no other servers", wanted=False)
    return found


def addresses(config: Config) -> Iterator[tuple[str, str, int]]:
    """Setting, host and port of each server; those whose address can't be read are left out."""
    for name in ("kafka", "zookeeper"):
        for each in (getattr(config, name) or "").partition("/")[0].split(","):
            host, _, port = each.strip().rpartition(":")
            if host and port.isdecimal():
                yield name, host.strip("[]"), int(port)
    for name in ("database", "auth_tokeninfo_local", "auth_tokeninfo_remote"):
        try:
            parts = urlsplit(getattr(config, name) or "")
            port = parts.port or PORTS.get(parts.scheme.partition("+")[0])
        except ValueError:
            continue
        # PostgreSQL's socket file has no host.
        if parts.hostname and port:
            yield name, parts.hostname, port


# --- Checks of the settings of the broker on this host: errors, unsafe values, values that do not fit the machine ---

GROUP = "Settings"
DEFAULT_SALT = Config().pseudonym_salt
OTHERS = 0o007
GROUP_AND_OTHERS = 0o077
_SECURITY = "docs/operating/security.md"


@check(GROUP, ERROR)
def valid_settings(settings: SettingsFacts) -> Iterator[DoctorFinding]:
    """Whether the broker can start with its settings: names, values, contradictions."""
    if settings.error:
        yield error(settings.error, "`rioni config show` lists all settings: docs/operating/configuration.md")


@check(GROUP, ERROR)
def open_access(config: Config, settings: SettingsFacts) -> Iterator[DoctorFinding]:
    """Whether other machines can reach the broker without authentication."""
    if config.unprotected:
        yield error(
            f"auth_mode is off, and other machines can reach {settings.host}: everybody may do everything.",
            f"Choose an auth_mode, a source of tokens and a default_admin: {_SECURITY}",
        )


@check(GROUP, ERROR)
def default_administrator(config: Config) -> Iterator[DoctorFinding]:
    """Whether default_admin is the one whose name everybody knows."""
    if config.auth_mode != Mode.OFF and config.default_admin == WELL_KNOWN_ADMIN:
        yield error(
            f"default_admin is {WELL_KNOWN_ADMIN}, which everybody knows and which has every right.",
            f"Choose an identity that your token sources give to nobody else: {_SECURITY}#modes",
        )


@check(GROUP)
def tokens_in_clear(config: Config, settings: SettingsFacts) -> Iterator[DoctorFinding]:
    """Whether clients on other machines have to send their tokens without TLS."""
    if config.auth_mode != Mode.OFF and not config.local_only and config.tls_certificate is None:
        yield warning(
            f"The broker accepts tokens on {settings.host} without TLS.",
            "Set tls_certificate and tls_key; or let a proxy end TLS, see that only it can reach the port, and use "
            f"--skip tokens-in-clear; {_SECURITY}#a-proxy-in-front-of-the-broker",
        )


@check(GROUP, ERROR)
def files_with_secrets(secret_files: list[SecretFile]) -> Iterator[DoctorFinding]:
    """Whether other users may read the files with keys and passwords that settings name."""
    for each in secret_files:
        # The broker itself refuses a signing key that its group may read.
        forbidden = GROUP_AND_OTHERS if each.setting == "log_signing_key" else OTHERS
        if each.mode & forbidden:
            yield error(f"{each.setting}: other users may use {each.path} ({each.mode:04o}).", f"chmod 600 {each.path}")
        elif each.error and each.setting != "log_signing_key":
            yield warning(
                f"{each.setting}: {each.path} can't be looked at: {each.error}.",
                "See whether the file is there; run this command as the user of the broker.",
            )


@check(GROUP)
def pseudonyms(config: Config, features: list[Feature]) -> Iterator[DoctorFinding]:
    """Whether the pseudonyms of clients in KPI events can be guessed."""
    if config.pseudonym_salt == DEFAULT_SALT and any(
        each.enabled for each in features if each.feature == "kpi_collection"
    ):
        yield warning(
            "KPI events have pseudonyms of clients that are made with the default salt, so names can be guessed.",
            "Set pseudonym_salt to a random text: docs/concepts/own-events.md",
        )


@check(GROUP)
def cluster_settings(config: Config) -> Iterator[DoctorFinding]:
    """Whether a cluster survives the loss of a server, and keeps strangers out of ZooKeeper."""
    if not config.clustered:
        return
    for name in ("kafka", "zookeeper"):
        servers = (getattr(config, name) or "").partition("/")[0].split(",")
        if len(servers) == 1:
            yield warning(
                f"The setting {name} names a single server, without which nodes can't start.",
                f"Name all of its servers: docs/operating/{name}.md",
            )
    if config.zookeeper_options is None:
        yield warning(
            "Every client that reaches ZooKeeper can change cursors and assignments: no user is set.",
            "Set zookeeper_options, or see that only nodes reach it: docs/operating/zookeeper.md",
        )


@check(GROUP)
def memory_budget(config: Config, memory: Memory) -> Iterator[DoctorFinding]:
    """Whether the memory that the settings allow is there."""
    worker = config.cache_bytes_max + config.worker_stream_memory_bytes_max + config.bodies_bytes_max
    worker += config.compiled_schemas_bytes_max
    there = min(memory.total_bytes, memory.limit_bytes or memory.total_bytes)
    if config.workers * worker > there:
        yield warning(
            f"{config.workers} workers may use {config.workers * worker / 2**30:.1f} GiB for events and requests; "
            f"there are {there / 2**30:.1f} GiB.",
            "Lower workers, cache_bytes_max, worker_stream_memory_bytes_max or bodies_bytes_max: "
            "docs/operating/sizing.md",
        )


@check(GROUP)
def debug_log(config: Config) -> Iterator[DoctorFinding]:
    """Whether the broker writes a log for developers."""
    if config.log_level == "debug":
        yield warning("log_level is debug, which writes a lot.", "Set log_level to info.")


@check(GROUP, ERROR)
def reachable_servers(servers: list[NamedServer]) -> Iterator[DoctorFinding]:
    """Whether PostgreSQL, Kafka, ZooKeeper and token info services accept connections from this host."""
    for each in servers:
        if each.error:
            yield error(
                f"{each.setting}: no connection to {each.address}: {each.error}.",
                "See whether that server runs, and whether a firewall or a wrong name is in between.",
            )


@check(GROUP, ERROR)
def drivers(config: Config, installation: InstalledPackages) -> Iterator[DoctorFinding]:
    """Whether the drivers of the servers that the settings name are installed here."""
    wanted = {
        "confluent_kafka": config.kafka is not None,
        "kazoo": config.zookeeper is not None,
        "psycopg": (config.database or "").startswith("postgresql"),
    }
    if missing := [name for name in DRIVERS if wanted[name] and name not in installation.drivers]:
        yield error(f"The settings need {', '.join(missing)}, missing here.", f"pip install {requirement('cluster')}")
