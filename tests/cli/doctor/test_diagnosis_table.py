"""The table of checks: each has cases, advice that leads somewhere, and facts of the right types."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from rioni.cli.doctor.diagnosis import all_checks, all_sources, chosen, needed
from rioni.domain.errors import Invalid
from tests.support.commands import all_commands
from tests.support.doctor_cases import sick


ROOT = Path(__file__).parents[3]
FOLDER = Path(__file__).parent
CASES = {
    name: cases
    for path in sorted(FOLDER.glob("test_*.py"))
    for name, cases in getattr(import_module(f"{__package__}.{path.stem}"), "CASES", {}).items()
}
FINDINGS = [finding for name, case in sick(CASES) for finding in all_checks()[name].find(*case.facts)]


def test_every_check_has_healthy_and_sick_cases():
    assert set(CASES) == set(all_checks())
    assert all(cases.healthy and cases.sick for cases in CASES.values())


def test_a_check_that_can_find_errors_has_a_case_of_one():
    for name, cases in CASES.items():
        assert (all_checks()[name].severity == "error") == any(case.severity == "error" for case in cases.sick), name


@pytest.mark.parametrize("check", all_checks().values(), ids=all_checks())
def test_a_check_says_what_it_looks_at_and_takes_facts_of_their_types(check):
    assert check.looks_at.endswith(".")
    for name, parameter in inspect.signature(check.find).parameters.items():
        assert parameter.annotation == all_sources()[name].gives


@pytest.mark.parametrize("source", all_sources().values(), ids=all_sources())
def test_a_source_takes_facts_of_their_types(source):
    parameters = list(inspect.signature(source.gather).parameters.values())[1:]
    for parameter in parameters:
        assert parameter.annotation == all_sources()[parameter.name].gives


def test_advice_names_pages_and_headings_that_exist():
    links = {link for each in FINDINGS for link in re.findall(r"docs/[\w./-]+?\.md(?:#[\w-]+)?", each.advice)}
    assert links
    for link in links:
        page, _, anchor = link.partition("#")
        text = (ROOT / page).read_text()
        headings = {
            re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-")
            for each in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        }
        assert not anchor or anchor in headings, link


def test_advice_names_commands_and_options_that_exist():
    commands = {
        " ".join(words): {option for each in command.params for option in each.opts}
        for words, command in all_commands()
    }
    found = [words for each in FINDINGS for words in re.findall(r"rioni ((?:[a-z-]+ ?)+)((?:[^`;,.)]*))", each.advice)]
    assert found
    for words, rest in found:
        name = " ".join(words.split())
        match = max((each for each in commands if f"{name} ".startswith(f"{each} ")), key=len, default=None)
        assert match is not None, f"rioni {name}"
        assert set(re.findall(r"--[a-z-]+", rest)) <= commands[match], f"rioni {name} {rest}"


def test_checks_are_chosen_by_name_or_group():
    assert [each.name for each in chosen(["clock", "reachable"])] == ["reachable", "clock"]
    assert {each.group for each in chosen(["Host"])} == {"Host"}
    assert "clock" not in [each.name for each in chosen(["connection"], ["clock"])]
    assert len(chosen(skip=["host"])) < len(chosen()) == len(all_checks())
    with pytest.raises(Invalid, match="did you mean reachable"):
        chosen(["reachabel"])
    with pytest.raises(Invalid, match="--list"):
        chosen(skip=["xxxxxxxx"])


def test_only_sources_are_asked_whose_facts_are_needed():
    assert {each.name for each in needed(chosen(["timelines"]))} == {"overdue_timelines", "event_types"}
    assert needed([]) == []
