"""Makes random tokens, and their entries in a file of tokens."""

import hashlib
import json
import secrets
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from rioni.domain.errors import Invalid, Unavailable
from rioni.files.edits import edited
from rioni.storage.tokens.tokens_file import parsed


TOKEN_BYTES = 32


class NewToken(NamedTuple):
    """A token, and its entry, which does not show it."""

    token: str
    sha256: str
    entry: str


def new_token(uid: str, scopes: Sequence[str], realm: str, expires: datetime | None) -> NewToken:
    """Make a random token.

    Args:
        uid: who shows it.
        scopes: what it is for.
        realm: in which the uid is unique.
        expires: with an offset; None for never.

    Raises:
        Invalid: a file with this entry would be refused; the text says why.
    """
    token = secrets.token_urlsafe(TOKEN_BYTES)
    sha256 = hashlib.sha256(token.encode()).hexdigest()
    members = {"sha256": sha256, "uid": uid, "scopes": list(scopes), "realm": realm}
    # NOTE: strings and lists of JSON are those of TOML.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in members.items()]
    if expires is not None:
        lines.append(f"expires = {expires.isoformat()}")
    entry = "\n".join(["[[token]]", *lines]) + "\n"
    try:
        parsed(entry.encode())
    except ValueError as ex:
        raise Invalid(f"The broker would refuse the entry: {ex}.") from ex
    return NewToken(token, sha256, entry)


def add_entry(path: Path, entry: str) -> None:
    """Add an entry to a file of tokens, which is made if it is missing; a running broker takes it within a second.

    Raises:
        Invalid: the file is not one of tokens; it is left as it is.
        Unavailable: it can't be read or written, or is being changed.
    """
    try:
        with edited(path) as file:
            separator = "\n" if file.text else ""
            file.text = f"{file.text.rstrip()}\n{separator}{entry}" if file.text else entry
            parsed(file.text.encode())
    except BlockingIOError as ex:
        raise Unavailable(f"Another command is changing {path}; try again.") from ex
    except OSError as ex:
        raise Unavailable(f"The file of tokens {path} can't be changed: {ex.strerror}.") from ex
    except ValueError as ex:  # not TOML, not UTF-8, not tokens
        raise Invalid(f"{path} is not a file of tokens, and was not changed: {ex}.") from ex
