"""Files that pages load: style, scripts and vendored libraries, under addresses that change with their content."""

import functools
import gzip
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import NamedTuple


TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


class Asset(NamedTuple):
    """A file as it is sent."""

    content_type: str
    content: bytes
    compressed: bytes
    digest: str


@functools.cache
def assets() -> Mapping[str, Asset]:
    """All files by their path below `static`."""
    folder = files("rioni.console").joinpath("static")
    found = {}
    for prefix, place in (("", folder), ("vendor/", folder.joinpath("vendor"))):
        for file in place.iterdir():
            kind = file.name.rpartition(".")[2]
            if kind in TYPES:
                content = file.read_bytes()
                digest = hashlib.sha256(content).hexdigest()[:16]
                found[prefix + file.name] = Asset(TYPES[kind], content, gzip.compress(content, 9, mtime=0), digest)
    return found


def asset_url(base_path: str, name: str) -> str:
    """The address of a file of a console that is served below a base path."""
    return f"{base_path}/console/static/{assets()[name].digest}/{name}"
