"""Cases for the checks of `rioni doctor`: facts of something sick, with what is found, and of something healthy."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from rioni.cli.doctor.diagnosis import all_checks


NOW = datetime.now(UTC)


def ago(**time: float) -> datetime:
    """A moment in the past, such as `ago(days=2)`."""
    return NOW - timedelta(**time)


class Sick(NamedTuple):
    """Facts in which a check finds something."""

    severity: str
    words: str
    """Part of the text of the first finding."""
    facts: Sequence[Any]


class Cases(NamedTuple):
    """The cases of a check."""

    healthy: Sequence[Sequence[Any]]
    sick: Sequence[Sick]


Table = Mapping[str, Cases]


def error(words: str, *facts: Any) -> Sick:
    """Facts with an error."""
    return Sick("error", words, facts)


def warning(words: str, *facts: Any) -> Sick:
    """Facts with a warning."""
    return Sick("warning", words, facts)


def healthy(table: Table) -> list[tuple[str, Sequence[Any]]]:
    """The healthy cases, as parameters of a test."""
    return [(name, facts) for name, cases in table.items() for facts in cases.healthy]


def sick(table: Table) -> list[tuple[str, Sick]]:
    """The sick cases, as parameters of a test."""
    return [(name, case) for name, cases in table.items() for case in cases.sick]


def check_healthy(name: str, facts: Sequence[Any]) -> None:
    """Fail if the check finds anything."""
    assert list(all_checks()[name].find(*facts)) == []


def check_sick(name: str, case: Sick) -> None:
    """Fail if the first finding is not as expected, or a finding is more severe than the table of checks says."""
    findings = list(all_checks()[name].find(*case.facts))
    assert findings, "nothing was found"
    assert findings[0].severity == case.severity
    assert case.words in findings[0].text
    assert all_checks()[name].severity == "error" or all(each.severity == "warning" for each in findings)
