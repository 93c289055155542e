"""The report of `rioni doctor` for people: checks without findings in a line, findings with advice, skipped checks."""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rioni.cli.terminal.output import console_on
from rioni.domain.terminal_text import visible


if TYPE_CHECKING:
    from rioni.cli.doctor.model import Check


FINDINGS_SHOWN = 5
"""The most findings of one check that are shown; `--json` has all."""
COLUMNS = {"check": "check", "group": "group", "at worst": "severity", "looks at": "looks_at"}
NAMES_SHOWN = 5
"""The most checks that are named for one reason to skip them; `--verbose` names all."""
STYLES = {"error": "bold red", "warning": "yellow", "ok": "green", "skipped": "dim"}

Shown = Mapping[str, Any]
"""A result as JSON, without secrets."""
Line = Callable[..., None]


def write(results: Sequence[Shown], subject: str, *, verbose: bool) -> None:
    """Write the results.

    Args:
        results: of all checks, by group.
        subject: of the checks, in words.
        verbose: whether to show each check.
    """
    console = console_on(sys.stdout)

    def line(text: str = "", style: str = "") -> None:
        console.print(visible(text), style=style, soft_wrap=True)

    line(subject)
    for group, members in groupby(results, key=lambda each: each["group"]):
        _write_group(group, list(members), line, verbose=verbose)
    if not verbose:
        _write_skipped(results, line)
    counts = Counter(each["status"] for each in results)
    line()
    line(
        f"{counts['error']} with errors, {counts['warning']} with warnings, {counts['ok']} in order, "
        f"{counts['skipped']} not looked at."
    )


def _write_group(group: str, results: Sequence[Shown], line: Line, *, verbose: bool) -> None:
    shown = [each for each in results if verbose or each["findings"]]
    fine = [each["check"] for each in results if each["status"] == "ok" and not verbose]
    if not shown and not fine:
        return
    line()
    in_order = f"  ok: {', '.join(fine)}" if fine else ""
    line(group + in_order, "bold" if shown else "")
    for each in shown:
        about = "; ".join(
            filter(None, (each["looks_at"].removesuffix(".") if verbose else "", each["reason"], each["note"]))
        )
        line(f"  {each['status']:8} {each['check']}{f' ({about})' if about else ''}", STYLES[each["status"]])
        for finding in each["findings"] if verbose else each["findings"][:FINDINGS_SHOWN]:
            line(f"           {finding['text']}")
            line(f"           -> {finding['advice']}")
        if not verbose and (more := len(each["findings"]) - FINDINGS_SHOWN) > 0:
            line(f"           and {more} more, which --verbose shows")


def _write_skipped(results: Sequence[Shown], line: Line) -> None:
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for each in results:
        if each["status"] == "skipped" and each["wanted"]:
            reasons[each["reason"]].append(each["check"])
    if reasons:
        line()
        line("Not looked at")
    for reason, checks in reasons.items():
        names = ", ".join(checks) if len(checks) <= NAMES_SHOWN else f"{len(checks)} checks"
        line(f"  {names}: {reason}")


def described(check: "Check") -> Shown:
    """A check for `--list`."""
    return {"check": check.name, "group": check.group, "severity": check.severity, "looks_at": check.looks_at}
