"""Where a lake is: a folder, or a bucket of an S3-compatible service, with its credentials from the environment."""

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from rioni.domain.errors import Invalid


_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL")
_REGION_DEFAULT = "us-east-1"


class Location(NamedTuple):
    """A folder, or a prefix in a bucket."""

    url: str
    """An absolute path, or `s3://bucket/prefix`; never ends with a slash."""
    s3: dict[str, str]
    """The variables `AWS_…` that are set, and a region; empty for a folder."""

    @property
    def folder(self) -> Path | None:
        """The folder; None for a bucket."""
        return None if self.s3 else Path(self.url)

    def below(self, *names: str) -> str:
        """A path below.

        Raises:
            Invalid: a name would lead elsewhere.
        """
        for each in names:
            if each in ("", ".", "..") or "/" in each or "\\" in each or "\0" in each:
                raise Invalid(f"{each!r:.100} can't be the name of a table.")
        return "/".join((self.url, *names))


def parse_location(text: str) -> Location:
    """Read what `--to` names.

    Raises:
        Invalid: it is a URL of another kind, names no bucket, or holds credentials.
    """
    parts = urlsplit(text)
    if "@" in parts.netloc:
        raise Invalid("The URL of a bucket holds no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.")
    if not parts.scheme:
        return Location(str(Path(text).absolute()), {})
    if parts.scheme != "s3" or not parts.netloc:
        raise Invalid(f"{text} is neither a folder nor a bucket; write a bucket like s3://bucket/prefix.")
    found = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}
    return Location(text.rstrip("/"), {"AWS_REGION": _REGION_DEFAULT} | found)
