"""A token file, for servers that require tokens."""

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
"""The settings of servers that require tokens."""


def write_tokens(path: Path, tokens: dict[str, dict]) -> None:
    """Write a token file; the members of each entry are those of its table, except `sha256`."""
    tables = []
    for token, members in tokens.items():
        lines = [f"{name} = {json.dumps(value)}" for name, value in members.items()]
        tables.append("\n".join(["[[token]]", f'sha256 = "{sha256(token)}"', *lines]))
    path.write_text("\n".join(tables))


def bearer(token: str | None) -> dict[str, str]:
    """The headers of a request with this token."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def sha256(token: str) -> str:
    """The hash by which a token is listed in the file."""
    return hashlib.sha256(token.encode()).hexdigest()
