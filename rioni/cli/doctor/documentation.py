"""The table of all checks as Markdown, for the documentation."""

from rioni.cli.doctor.table import CHECKS


def checks_as_markdown() -> list[str]:
    """Lines of a table."""
    rows = [f"| {each.group} | `{each.name}` | {each.severity} | {each.looks_at} |" for each in CHECKS.values()]
    return ["| Group | Check | At worst | What it looks at |", "|---|---|---|---|", *rows]
