"""Reads the client options of ZooKeeper from the file that `zookeeper_options` names."""

import tomllib
from pathlib import Path

import msgspec

from rioni.domain.errors import Unavailable


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the file may say."""

    user: str = ""
    """All nodes are made so that only this user may use them; without one, everybody may."""
    password: str = ""
    ca: str = ""
    """A PEM file with the CA certificates of the servers; it enables TLS."""
    certificate: str = ""
    """A PEM file with which a broker shows who it is, for servers that ask."""
    key: str = ""
    """A PEM file with the key of the certificate."""


def read_options(path: Path | None) -> Options:
    """Read the file, where there is one; blocks on the disk. No error shows a value, as that may be a password.

    Raises:
        Unavailable: it can't be read, or says something else.
    """
    if path is None:
        return Options()
    try:
        options = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Options)
    except OSError as ex:
        raise Unavailable(f"zookeeper_options: {path} can't be read: {ex.strerror}.") from ex
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as ex:
        raise Unavailable(f"zookeeper_options: {path} is not valid TOML: {ex}.") from ex
    except msgspec.ValidationError as ex:
        names = ", ".join(Options.__struct_fields__)
        raise Unavailable(f"zookeeper_options: invalid option in {path}: {ex}. Allowed (strings): {names}.") from ex
    for name, needed in (("user", "password"), ("password", "user"), ("certificate", "key"), ("key", "certificate")):
        if getattr(options, name) and not getattr(options, needed):
            raise Unavailable(f"zookeeper_options: {path} sets {name}, which needs {needed}.")
    if options.certificate and not options.ca:
        raise Unavailable(
            f"zookeeper_options: {path} sets certificate, which needs ca: client certificates are only used with TLS."
        )
    return options
