"""Builds multi-operation requests."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kazoo.client import KazooClient


ANY = -1
"""Matches any version."""


class Operation(NamedTuple):
    """An operation of a transaction, which is atomic."""

    method: str
    path: str
    arguments: tuple[Any, ...] = ()


def create(path: str, data: bytes = b"") -> Operation:
    """Create a persistent node."""
    return Operation("create", path, (data,))


def begin(path: str) -> Operation:
    """Create an ephemeral node, which ends with the session."""
    return Operation("create", path, (b"", None, True))


def delete(path: str) -> Operation:
    """Delete a node without children."""
    return Operation("delete", path)


def put(path: str, data: bytes, version: int = ANY) -> Operation:
    """Set a node's data, if it has this version."""
    return Operation("set_data", path, (data, version))


def check(path: str, version: int = ANY) -> Operation:
    """Check that a node has this version, without changing it."""
    return Operation("check", path, (version,))


def send(client: KazooClient, operations: Sequence[Operation]) -> Any:
    """Send a transaction, and return its pending result."""
    transaction = client.transaction()
    for operation in operations:
        getattr(transaction, operation.method)(operation.path, *operation.arguments)
    return transaction.commit_async()
