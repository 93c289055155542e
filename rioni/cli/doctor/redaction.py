"""Removes secrets from everything that is shown and bundled: known ones, and words that look like one.

Better too much than too little: a word is lost if it stands in the place of a secret.
"""

import base64
import binascii
import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

import msgspec

from rioni.cli.doctor.locating import PROC
from rioni.cli.doctor.model import Host
from rioni.config.settings import SETTINGS, Config
from rioni.files.plain import parse_toml, read_file


MASK = "***"
KNOWN_CHARACTERS_MIN = 4
"""Shorter texts are in too many words; if they stand as a secret, patterns find them."""
ANYWHERE_CHARACTERS_MIN = 8
"""Shorter ones are replaced as whole words only."""
LINE_CHARACTERS_MAX = 10_000
"""Longer lines are cut: patterns take time."""
FILE_BYTES_MAX = 1_000_000

_NAME = (
    r"pass(?:word|wd|phrase|wort)|pwd|secrets?|tokens?|api[-_.]?keys?|access[-_.]?keys?(?:[-_.]?id)?|"
    r"private[-_.]?keys?|account[-_.]?keys?|credentials?|authorization|cookies?|jaas[-_.]config|signature|session[-_.]?id"
)
_AROUND = r"[\w.-]{0,100}"
"""The characters before and after such a name; bounded, since expressions try each length."""
_SHORT_NAME = r"pass|psk|salt|sas|sig"
"""Parts of many words, so names have to begin or end with them."""
SECRET_NAME = re.compile(
    rf"(?:(?:{_NAME})|(?:^|[^a-z]|(?-i:(?<=[a-z])(?=[A-Z])))(?:{_SHORT_NAME}))(?:$|(?-i:[^a-z]))", re.IGNORECASE
)
PUBLIC_NAMES = frozenset(
    {
        *(name for name, setting in SETTINGS.items() if not setting.secret),
        "token_error",
        "remote_tokeninfo",
        "PWD",
        "OLDPWD",
    }
)
"""Names that look like those of secrets, and are not."""

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_END_OF_KEY = re.compile(r"\A.*-----END [A-Z0-9 ]*PRIVATE KEY-----", re.DOTALL)
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # User and password of URLs, up to the last @: a password may hold anything.
    (re.compile(r"(://)[^\s\"'<>]*@"), rf"\g<1>{MASK}@"),
    (re.compile(r"(?<![\w.])[^\s:/@\"'=]+:[^\s:/@\"']+@(?=[\w.-])"), f"{MASK}@"),
    (re.compile(r"\b(bearer|negotiate)(\s+)[^\s\"',;]+", re.IGNORECASE), rf"\1\2{MASK}"),
    (re.compile(r"\beyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)*"), MASK),
    (
        re.compile(
            r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bgh[pousr]_\w{10,}|\bgithub_pat_\w{10,}|\bglpat-[\w-]{10,}"
            r"|\bxox[a-z]-[\w-]{10,}|\bAIza[\w-]{20,}|\bsk-[\w-]{16,}|\bnpm_\w{20,}|\bhv[sb]\.[\w-]{10,}"
        ),
        MASK,
    ),
    # --password word, -u user:password
    (
        re.compile(rf"(?<![\w-])(--(?:[\w-]{0, 100}-)?(?:{_NAME})[ =])(?:\"[^\"]*\"|'[^']*'|\S+)", re.IGNORECASE),
        rf"\1{MASK}",
    ),
    (re.compile(r"(\s-u\s+)\S+:\S+"), rf"\1{MASK}"),
)
_ASSIGNED = re.compile(
    rf"(?<![\w.-])(?P<name>{_AROUND}?(?:{_NAME}|{_SHORT_NAME}){_AROUND})(?P<sign>\\*[\"']?\]?\s*(?:=>|[:=])\s*)"
    r"(?P<value>\\+[\"'].*?(?:\\+[\"']|$)|\"(?:[^\"\\]|\\.)*(?:\"|$)|'(?:[^'\\]|\\.)*(?:'|$)|[^\s\"'\\]\S*)",
    re.IGNORECASE,
)
_BLOCK = re.compile(
    rf"^(?P<begin>(?P<indent>[ \t]*)(?:- )?[\"']?(?P<name>{_AROUND}(?:{_NAME}|{_SHORT_NAME}){_AROUND})[\"']?[ \t]*:"
    r"[ \t]*(?:[|>][-+0-9]*)?[ \t]*\n)(?:(?P=indent)[ \t]+[^\n]*(?:\n|\Z))+",
    re.IGNORECASE | re.MULTILINE,
)
"""A value of YAML on separate lines."""
_OF_SEVERAL_WORDS = re.compile(r"authorization|cookie", re.IGNORECASE)
_BASE64 = re.compile(r"(?<![\w+/=])[A-Za-z0-9+/]{8,}={0,2}(?![\w+/=])")


class Redactor:
    """Removes secrets from texts and JSON values.

    Args:
        secrets: the known ones.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets for form in _forms(secret) if len(form) >= KNOWN_CHARACTERS_MIN}
        words = [
            re.escape(form) if len(form) >= ANYWHERE_CHARACTERS_MIN else rf"(?<!\w){re.escape(form)}(?!\w)"
            for form in sorted(forms, key=len, reverse=True)
        ]
        self._known = re.compile("|".join(words)) if words else None

    def text(self, text: str) -> str:
        """A text of any length without secrets."""
        text = self._without_known(_END_OF_KEY.sub(MASK, _PRIVATE_KEY.sub(MASK, text)))
        text = _BLOCK.sub(_without_block, text)
        return "\n".join(map(self._line, text.split("\n")))

    def value(self, value: Any) -> Any:
        """A JSON value without secrets; what stands under the name of one is masked as a whole."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self._member(str(name), each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        return value

    def _member(self, name: str, value: Any) -> Any:
        if is_secret(name) and value is not None and not isinstance(value, bool):
            return MASK if value else value
        return self.value(value)

    def _without_known(self, text: str) -> str:
        return text if self._known is None else self._known.sub(MASK, text)

    def _line(self, line: str) -> str:
        if len(line) > LINE_CHARACTERS_MAX:
            line = f"{line[:LINE_CHARACTERS_MAX]}... (cut)"
        elif line.lstrip().startswith(("{", "[")):
            with contextlib.suppress(msgspec.DecodeError, RecursionError):
                return msgspec.json.encode(self.value(msgspec.json.decode(line))).decode()
        for pattern, mask in _PATTERNS:
            line = pattern.sub(mask, line)
        return _BASE64.sub(_without_password, _without_assigned(line))


def is_secret(name: str) -> bool:
    """Whether the value of this name is a secret."""
    return name not in PUBLIC_NAMES and SECRET_NAME.search(name) is not None


def _without_assigned(line: str) -> str:
    """Mask the values after the names of secrets."""
    parts, place = [], 0
    while found := _ASSIGNED.search(line, place):
        parts.append(line[place : found.start("value")])
        place = found.start("value")
        if is_secret(found["name"]):
            parts.append(MASK)
            place = len(line) if _takes_the_line(found) else found.end("value")
    return "".join([*parts, line[place:]])


def _without_block(found: re.Match[str]) -> str:
    return f"{found['begin']}{found['indent']}  {MASK}\n" if is_secret(found["name"]) else found[0]


def _takes_the_line(found: re.Match[str]) -> bool:
    """Whether a secret may have several words: those of headers and of YAML, and objects."""
    if _OF_SEVERAL_WORDS.search(found["name"]):
        return True
    return found["value"][0] not in "\"'\\" and (":" in found["sign"] or found["value"][0] in "{[(")


def _without_password(found: re.Match[str]) -> str:
    """Mask the encoded user and password of the scheme Basic."""
    with contextlib.suppress(binascii.Error, UnicodeDecodeError):
        decoded = base64.b64decode(found[0], validate=True).decode()
        if ":" in decoded and decoded.isprintable():
            return MASK
    return found[0]


def known_secrets(token: str | None, host: Host | None, environ: Mapping[str, str] = os.environ) -> set[str]:
    """The secrets that this command can learn of: its token, of the environment, settings and the files that they name.

    Args:
        token: that is shown to the broker.
        host: of the broker.
        environ: the environment of this command.
    """
    found = {token} if token else set()
    found.update(value for name, value in environ.items() if is_secret(name))
    if host is not None:
        if host.pid is not None:
            found.update(_of_process(host.pid))
        if host.config is not None:
            found.update(_of_settings(host.config))
        found.update(_of_key(host.data / "log-signing.key"))
    found.update([part for each in tuple(found) for part in _parts_of_url(each)])
    return {each for each in found if each != Config().pseudonym_salt}


def _of_process(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for text in (PROC / str(pid) / "environ").read_bytes().decode(errors="replace").split("\0"):
            name, _, value = text.partition("=")
            if is_secret(name):
                yield value
            yield from _parts_of_url(value)


def _of_settings(config: Config) -> Iterator[str]:
    for name, setting in SETTINGS.items():
        value = getattr(config, name)
        if isinstance(value, str):
            if setting.secret:
                yield value
            yield from _parts_of_url(value)
    for path in (config.kafka_options, config.zookeeper_options):
        if path is not None:
            yield from _of_toml(path)
    for path in (config.tls_key, config.log_signing_key):
        if path is not None:
            yield from _of_key(path)


def _parts_of_url(text: str) -> Iterator[str]:
    with contextlib.suppress(ValueError):
        parts = urlsplit(text)
        if parts.password:
            yield from (parts.password, unquote(parts.password))


def _of_toml(path: Path) -> Iterator[str]:
    with contextlib.suppress(OSError, ValueError):
        yield from _secret_members(parse_toml(_beginning(path), errors="replace"))


def _secret_members(table: Mapping[str, Any], *, above: bool = False) -> Iterator[str]:
    for name, value in table.items():
        secret = above or is_secret(name)
        if isinstance(value, Mapping):
            yield from _secret_members(value, above=secret)
        elif secret:
            yield str(value)


def _of_key(path: Path) -> Iterator[str]:
    """The lines of a file with a private key."""
    with contextlib.suppress(OSError):
        lines = _beginning(path).decode(errors="replace").splitlines()
        yield from (line for line in lines if line and not line.startswith("-----"))


def _beginning(path: Path) -> bytes:
    return read_file(path)[:FILE_BYTES_MAX]


def _forms(secret: str) -> set[str]:
    """The texts as which a secret may appear."""
    plain = {
        secret,
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
    }
    return plain | {base64.b64encode(secret.encode()).decode().rstrip("=")}
