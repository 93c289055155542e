"""Builders of multi-operation requests."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kazoo.client import KazooClient


ANY = -1
"""Whatever the version."""


class Operation(NamedTuple):
    """A part of a transaction: which is done as a whole, or not at all."""

    method: str
    path: str
    arguments: tuple[Any, ...] = ()


def create(path: str, data: bytes = b"") -> Operation:
    """Create a node that stays."""
    return Operation("create", path, (data,))


def begin(path: str) -> Operation:
    """Create a node that ends with the session."""
    return Operation("create", path, (b"", None, True))


def delete(path: str) -> Operation:
    """Delete a node without children."""
    return Operation("delete", path)


def put(path: str, data: bytes, version: int = ANY) -> Operation:
    """Change a node, if it has this version."""
    return Operation("set_data", path, (data, version))


def check(path: str, version: int = ANY) -> Operation:
    """Do nothing, if the node has this version."""
    return Operation("check", path, (version,))


def send(client: KazooClient, operations: Sequence[Operation]) -> Any:
    """Begin a transaction, and return what its answer will be."""
    transaction = client.transaction()
    for operation in operations:
        getattr(transaction, operation.method)(operation.path, *operation.arguments)
    return transaction.commit_async()
