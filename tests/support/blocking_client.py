"""An asynchronous client that tests use like the synchronous one, so that the same tests run over both."""

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any, Self


class Blocking:
    """Runs coroutines and asynchronous iterators of an object, and of the objects in it, in an event loop."""

    def __init__(self, target: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._target, self._loop = target, loop

    def __getattr__(self, name: str) -> Any:
        return self._wrapped(getattr(self._target, name))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._wrapped(self._target(*arguments, **named))

    def __enter__(self) -> Self:
        self._loop.run_until_complete(self._target.__aenter__())
        return self

    def __exit__(self, *ex: object) -> None:
        self._loop.run_until_complete(self._target.__aexit__(*ex))

    def __iter__(self) -> Iterator[Any]:
        iterator = aiter(self._target)
        while True:
            try:
                yield self._loop.run_until_complete(anext(iterator))
            except StopAsyncIteration:
                return

    def _wrapped(self, value: Any) -> Any:
        if inspect.isawaitable(value):
            return self._wrapped(self._loop.run_until_complete(value))
        module = type(value).__module__
        if inspect.ismethod(value) or hasattr(value, "__aiter__") or module.startswith("rioni.client._async"):
            return Blocking(value, self._loop)
        return value
