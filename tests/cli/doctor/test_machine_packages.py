import pytest

from rioni.cli.doctor.machine import InstalledPackages, PackageConflict, Pins
from tests.support.doctor_cases import Cases, check_healthy, check_sick, error, healthy, sick, warning


def installed(*conflicts):
    return InstalledPackages("0.1.1", "3.11", "3.50", {}, list(conflicts))


DIFFERENT = [PackageConflict("dev.txt", f"p{number}==1", "2") for number in range(7)]
CASES = {
    "packages": Cases(
        [[installed()]],
        [
            error(
                "rioni needs gevent>=26; 25.0 is installed", installed(PackageConflict("rioni", "gevent>=26", "25.0"))
            ),
            error("it is missing", installed(PackageConflict("rioni", "gevent>=26"))),
        ],
    ),
    "package-versions": Cases(
        [[Pins("dev.txt", 9, [])]], [warning("7 packages have another version", Pins("dev.txt", 9, DIFFERENT))]
    ),
}


@pytest.mark.parametrize(("name", "facts"), healthy(CASES))
def test_nothing_is_found_in_a_healthy_installation(name, facts):
    check_healthy(name, facts)


@pytest.mark.parametrize(("name", "case"), sick(CASES))
def test_what_is_wrong_with_packages_is_found(name, case):
    check_sick(name, case)
