"""Checks of this Python and its packages, which are those of the broker where both are installed together."""

from collections.abc import Iterator

from rioni.cli.doctor.facts.installation import Installation, Pins
from rioni.cli.doctor.model import ERROR, Finding, check, error, warning
from rioni.files.extras import requirement


GROUP = "Installation"
SHOWN_MAX = 5


@check(GROUP, ERROR)
def packages(installation: Installation) -> Iterator[Finding]:
    """Whether all packages that Rioni needs are installed here, in versions that fit."""
    for each in installation.conflicts:
        there = f"{each.installed} is installed" if each.installed else "it is missing"
        yield error(f"{each.package} needs {each.requirement}; {there}.", f"pip install '{each.requirement}'")


@check(GROUP)
def package_versions(pins: Pins) -> Iterator[Finding]:
    """Whether packages have the versions of the file that `--constraints` names."""
    if pins.different:
        shown = ", ".join(f"{each.requirement} ({each.installed})" for each in pins.different[:SHOWN_MAX])
        more = f", and {len(pins.different) - SHOWN_MAX} more" if len(pins.different) > SHOWN_MAX else ""
        yield warning(
            f"{len(pins.different)} packages have another version than {pins.file} says: {shown}{more}.",
            f"pip install --constraint {pins.file} {requirement()}",
        )
