import importlib.metadata

import pytest

from rioni.cli.doctor import machine


@pytest.fixture
def distributions(monkeypatch):
    """Makes packages: versions, and what each requires."""

    def make(versions, requires):
        def version(name):
            if name not in versions:
                raise importlib.metadata.PackageNotFoundError(name)
            return versions[name]

        monkeypatch.setattr(importlib.metadata, "version", version)
        monkeypatch.setattr(importlib.metadata, "requires", requires.get)

    return make


def test_requirements_of_requirements_are_compared(distributions):
    distributions(
        {"a": "1.0", "b-c": "2.0rc1"},
        {
            "rioni": ["a>=1", "B_c>=2.0rc0", "x; extra == 'y'", "z>1; python_version < '3'"],
            "a": ["rioni", "d>=3", "b.c>=9"],
        },
    )
    found = machine.installation.gather(None)
    assert {"a": "1.0", "b-c": "2.0rc1"}.items() <= found.packages.items()
    assert machine.PackageConflict("a", "d>=3") in found.conflicts
    assert machine.PackageConflict("a", "b.c>=9", "2.0rc1") in found.conflicts
    assert not [each for each in found.conflicts if each.requirement.startswith(("x", "z"))]


def test_this_installation_is_in_order():
    found = machine.installation.gather(None)
    assert found.conflicts == []
    assert "msgspec" in found.packages
    assert found.python.startswith("3.")


def test_versions_are_compared_with_a_file_of_constraints(distributions, tmp_path):
    distributions({"a": "1.0", "b": "2.0"}, {})
    file = tmp_path / "dev.txt"
    file.write_text("# a comment\na==1.0\nb==3.0 ; python_version > '3'\nabsent==1\n-r other.txt\n")
    assert machine.compared(file) == machine.Pins(str(file), 2, [machine.PackageConflict("dev.txt", "b==3.0", "2.0")])
