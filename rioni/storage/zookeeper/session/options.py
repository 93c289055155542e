"""Reads the client options of ZooKeeper from the file in the setting `zookeeper_options`."""

import tomllib
from pathlib import Path

import msgspec

from rioni.domain.errors import Unavailable
from rioni.files.plain import read_toml


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
        options = msgspec.convert(read_toml(path), ZooKeeperOptions)
    except OSError as ex:
        raise Unavailable(f"zookeeper_options: {path} can't be read: {ex.strerror}.") from ex
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as ex:
        raise Unavailable(f"zookeeper_options: {path} is not valid TOML: {ex}.") from ex
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
