"""Keeps secrets of catalogs and buckets out of errors, whichever library they come from."""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, unquote, urlsplit


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
