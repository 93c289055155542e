"""Runs the rows of the contract's tables: inputs of a stream as plain data, and its outputs."""

from collections.abc import Iterable
from typing import Any

from tests.domain.streaming.driver import Driver


def play(driver: Driver, steps: Iterable[tuple[Any, ...]]) -> Driver:
    """Run the steps: each is the name of a method of the driver, and its arguments."""
    for name, *arguments in steps:
        getattr(driver, name)(*arguments)
    return driver


def new_batches(driver: Driver) -> list[tuple[str, int, list[int]]]:
    """The batches since the last call: partition, position, events."""
    return [(batch.partition.partition, batch.position, batch.events) for batch in driver.taken()]
