"""Checks that text can be stored by every database (no NUL)."""

from collections.abc import Iterator


def nul_violations(field: str, text: str | None) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a field that is stored in a column of its own: PostgreSQL knows no U+0000."""
    if text is not None and "\0" in text:
        yield field, "must not contain the character U+0000"
