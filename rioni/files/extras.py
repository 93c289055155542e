"""The requirement to install for an optional feature, from the origin of this installation: an index or another."""

import json
import shlex
from importlib import import_module, metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from rioni.domain.errors import Unavailable


NAME = "rioni"


def requirement(extra: str = "") -> str:
    """The arguments of `pip install` that install this Rioni again, with an extra.

    Args:
        extra: such as `spark`; without one, the requirement of the present installation.

    Returns:
        Words for a shell: `'rioni[spark]'` if it came from a package index, otherwise the folder, file or repository
        that it came from, according to its metadata (PEP 610): `--editable '/src/rioni[spark]'`.
    """
    extras = f"[{extra}]" if extra else ""
    origin = _origin()
    url = origin.get("url", "")
    if (path := _local(url)) is not None:
        editable = "--editable " if origin.get("dir_info", {}).get("editable") else ""
        return editable + shlex.quote(f"{path}{extras}")
    if vcs := origin.get("vcs_info"):
        return shlex.quote(f"{NAME}{extras} @ {vcs['vcs']}+{url}@{vcs['commit_id']}")
    return shlex.quote(f"{NAME}{extras} @ {url}" if url.startswith("http") else f"{NAME}{extras}")


def _origin() -> dict[str, Any]:
    """The origin of the installation; empty for an index, and if Rioni is not installed."""
    try:
        text = metadata.distribution(NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return {}
    found: dict[str, Any] = json.loads(text) if text else {}
    return found


def _local(url: str) -> Path | None:
    """The folder or file of a URL, while it is there."""
    parts = urlsplit(url)
    path = Path(unquote(parts.path))
    return path if parts.scheme == "file" and path.exists() else None


def check_spark() -> None:
    """Check that Spark is installed.

    Raises:
        Unavailable: the extra is not installed.
    """
    try:
        import_module("pyspark")
    except ImportError as ex:
        raise Unavailable(f"This needs Spark, and Java 17 or newer: pip install {requirement('spark')}") from ex
