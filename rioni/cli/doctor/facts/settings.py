"""The settings of the broker on this host, and the files with secrets that they name."""

import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from rioni.cli.doctor.model import NotLookedAt, source
from rioni.cli.doctor.site import Host, Site
from rioni.config.settings import SETTINGS, Config


FILES_WITH_SECRETS = ("tls_key", "kafka_options", "zookeeper_options", "log_signing_key")
SIGNING_KEY = "log-signing.key"
"""In the data directory, where the setting names no other."""


class Shown(msgspec.Struct, frozen=True):
    """Whether there are settings, and what may be shown of them."""

    origin: str
    """Whose they are."""
    error: str = ""
    """Why they can't be used."""
    values: Mapping[str, tuple[str, str]] = {}
    """Value and source of each, by name; secrets are masked."""


class SecretFile(msgspec.Struct, frozen=True):
    """A file that holds a secret."""

    setting: str
    path: str
    mode: int = 0
    """Its permissions."""
    error: str = ""
    """Why it can't be looked at."""


@source
def settings(site: Site) -> Shown:
    """Show the settings."""
    host = site.beside_the_broker()
    if host.config is None:
        return Shown(host.origin, host.error)
    values = {
        name: (setting.show(getattr(host.config, name)), host.sources.get(name, ""))
        for name, setting in SETTINGS.items()
    }
    return Shown(host.origin, values=values)


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
