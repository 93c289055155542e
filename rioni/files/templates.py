"""Makes Jinja environments that native threads use."""

from typing import Any


def load() -> None:
    """Import Jinja; call it on the hub before the first environment is made, as native threads must not import."""
    # PERF: 40 ms of every start.
    import jinja2.lexer  # noqa: F401, PLC0415


def environment(**options: Any) -> Any:
    """An environment that uses none of the library's caches with locks, as native threads must not wait for them.

    Args:
        options: the options of `jinja2.Environment`, in addition to those that all pages share.
    """
    from jinja2 import Environment  # noqa: PLC0415 - see load
    from jinja2.lexer import Lexer  # noqa: PLC0415

    class InThreads(Environment):
        lexer: Any = None

    made = InThreads(cache_size=-1, autoescape=True, trim_blocks=True, lstrip_blocks=True, **options)
    made.lexer = Lexer(made)
    return made
