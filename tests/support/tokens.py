"""Tokens of a file, for servers that ask for tokens."""

import hashlib
import json
from pathlib import Path


FULL_SCOPES = (
    "uid",
    "nakadi.event_type.write",
    "nakadi.config.write",
    "nakadi.event_stream.write",
    "nakadi.event_stream.read",
)


ADMINISTRATOR = {"RIONI_DEFAULT_ADMIN": "service:stups_nakadi"}
"""What servers that ask for tokens have to be told."""


def write_tokens(path: Path, tokens: dict[str, dict]) -> None:
    """Write a file of tokens; the members of each are those of its table, `sha256` aside."""
    tables = []
    for token, members in tokens.items():
        lines = [f"{name} = {json.dumps(value)}" for name, value in members.items()]
        tables.append("\n".join(["[[token]]", f'sha256 = "{sha256(token)}"', *lines]))
    path.write_text("\n".join(tables))


def bearer(token: str | None) -> dict[str, str]:
    """The headers of a request with this token."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def sha256(token: str) -> str:
    """How a token stands in the file."""
    return hashlib.sha256(token.encode()).hexdigest()
