"""The location of a lake: a folder, or a bucket of an S3-compatible service, whose secrets stay out of errors."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from rioni.domain.errors import Invalid


# The location of a lake: a folder, or a bucket of an S3-compatible service, with its credentials from the environment.

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


# --- Keeps secrets of catalogs and buckets out of errors, whichever library they come from ---

MASK = "***"
ANYWHERE_CHARACTERS_MIN = 4

_SECRET_NAME = re.compile(r"secret|password|passwd|token|credential|access[-_.]?key", re.IGNORECASE)
_USER_INFO = re.compile(r"(://)[^\s\"'<>]*@")


class Secrets:
    """Secrets that are known by their values.

    Args:
        named: values by name; those whose names are those of secrets, and what URLs among the others hold.
    """

    def __init__(self, named: Mapping[str, object]) -> None:
        found: set[str] = set()
        for name, value in named.items():
            if not isinstance(value, str):
                continue
            if _SECRET_NAME.search(name):
                found.add(value)
            elif "://" in value:
                found.update(_of_url(value))
        # A longer one may hold a shorter one.
        self._values = sorted(filter(None, found), key=len, reverse=True)

    def removed_from(self, text: object) -> str:
        """The text without the secrets, and without what stands before the @ of any URL."""
        shown = str(text)
        for value in self._values:
            # Short ones are parts of many words.
            border = "" if len(value) >= ANYWHERE_CHARACTERS_MIN else r"\b"
            shown = re.sub(rf"{border}{re.escape(value)}{border}", MASK, shown)
        return _USER_INFO.sub(rf"\1{MASK}@", shown)


def without_credentials(url: str) -> str:
    """Scheme, host and path of a URL; any other text as it is."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    return f"{scheme}://{re.split('[?#]', rest.rpartition('@')[2], maxsplit=1)[0]}"


def _of_url(url: str) -> Iterable[str]:
    """The secrets that a URL holds, as they are written and as they are meant."""
    rest = url.partition("://")[2]
    user_info = rest.rpartition("@")[0]
    password = user_info.partition(":")[2]
    # A password that is not escaped may hold any character: libraries cut it in different places.
    parts = [user_info, password, *re.split("[:@/?#]", password)]
    parts += [value for name, value in parse_qsl(_query(url)) if _SECRET_NAME.search(name)]
    return {each for part in parts for each in (part, unquote(part))}


def _query(url: str) -> str:
    try:
        return urlsplit(url).query
    except ValueError:
        return url.partition("?")[2]
