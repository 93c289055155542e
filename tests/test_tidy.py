"""The rules of CONTRIBUTING.md that can be checked automatically."""

import ast
import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.authorization_steps import DECISION, PLACES, is_refusal


ROOT = Path(__file__).parents[1]
LINES_MAX, TEST_LINES_MAX = 400, 500
WHOLE = {"rioni/operations/verify_export.py": 420}
"""The verifier is copied into exports, so that it must be one file."""
TALKING = {"demo.py", "bench.py", "server.py"}
HEADLESS = re.compile(r"(?:What|Of|Those|That|Which|Who|Whoever|Where|As|The same)\b")
COMMENT = re.compile(rf"^ *# {HEADLESS.pattern}")
HEADING = re.compile(rf"^#+ (?:\d+\. )?{HEADLESS.pattern}")
GRAB_BAGS = {"utils", "util", "helpers", "helper", "common", "misc"}
# A path below a home, a root or a temporary directory belongs to one machine.
MACHINE_PATH = re.compile(r"(?<![\w.~<>{}-])/(?:home|root|Users|tmp|work)/\w")
# Words that mean nothing to a new reader, each with a replacement.
PRIVATE_WORDS = {
    "whoever": "who it is: the client, the process, the caller",
    "somebody": "who it is: another client, another worker",
    "nobody knows": "the outcome is unknown",
    "become of": "outcome",
    "(?:gave|gives?|given|giving) up": "stop, fail, time out",
    "keeper": "session",
    "(?:house ?keeper|keep_house)": "background jobs",
    "hearsay": "propagation",
    "pulse": "watchdog, heartbeat",
    "attendance": "activity",
    "mirror": "cache",
    "pump": "runner",
    "story": "description",
    "lapsed": "expired",
    "(?:bury|buries|buried|burial)": "dead letter, or remove",
    "acquit": "clear",
    "sweep(?:er|ing|s)?": "clean up, delete orphans",
    "forsaken": "orphaned",
    "storable": "what is checked",
    "adoption": "import",
    "settling": "recovery",
    "judge[ds]?": "validate, filter",
    "(?:stands?|stood) still": "hang, be suspended",
    "vouch(?:es)?": "authenticate",
    "occupancy": "lease",
    "surroundings": "context, dependencies",
    "examination": "health check",
    "in vain": "for nothing, or the error",
    "give_?back": "release",
    "troubles": "failures",
    "complaints?": "problem, error",
    "spoil(?:ed|s)?": "invalidate",
    "extents?": "offset range",
    "offloads?": "thread pool",
    "kept_ms": "retention_ms",
    "hang_up": "disconnect",
    "ask_patiently": "request_with_retry",
    "lets? go": "release, delete",
    "by and by": "later, in steps",
    "in place of": "instead of",
    "likewise": "the same statement again",
    "there are none": "without, none found",
    "(?:ha[sd]|have) come": "has arrived",
    "(?:is|are|was|were) told": "learns, receives; or who tells it",
    "so many (?:bytes|days|events|seconds|times)": "the number: `size`, N, this many",
}
PRIVATE_WORD = re.compile(rf"(?<![a-z])(?:{'|'.join(PRIVATE_WORDS)})(?![a-z])", re.IGNORECASE)
OPEN_TODO = re.compile(r"(?<!`)\b(?:TODO|FIXME)\b(?! ?\(#\d+\))")


def _files(*patterns: str) -> Iterator[Path]:
    for pattern in patterns:
        for path in ROOT.glob(pattern):
            if not {"_build", "__pycache__"} & set(path.parts):
                yield path


MODULES = sorted(_files("rioni/**/*.py", "tests/**/*.py", "benchmarks/**/*.py", "dev/*.py", "docs/**/*.py"))
TEXTS = sorted({*MODULES, *_files("*.md", "*.toml", "tox.ini", ".ci/*", "docs/**/*.md", "benchmarks/**/*.md")})


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


class Source(NamedTuple):
    """Facts from the syntax tree of a module."""

    docstring: str
    refuses: bool
    prints: bool
    headless: list[int]
    """Lines of docstrings, also those of attributes and constants, and of help texts that begin as a clause."""


@cache
def _source(path: Path) -> Source:
    """PERF: each file is parsed once for all tests; the trees themselves would be too large to be kept."""
    tree = ast.parse(path.read_text())
    refuses = prints = False
    headless = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else ""
            refuses = refuses or called == DECISION
            prints = prints or called == "print"
        if isinstance(node, ast.keyword) and node.arg == "help":
            text = node.value.values[0] if isinstance(node.value, ast.JoinedStr) else node.value
            headless += [text.lineno] if HEADLESS.match(str(getattr(text, "value", ""))) else []
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            texts = [each for each in node.body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)]
            headless += [each.lineno for each in texts if HEADLESS.match(str(each.value.value).strip())]
        refuses = refuses or is_refusal(node)
    return Source(ast.get_docstring(tree) or "", refuses, prints, headless)


def test_files_to_check_are_found():
    assert ROOT / "rioni/config/settings.py" in MODULES
    assert ROOT / "README.md" in TEXTS


def test_every_module_has_a_docstring_with_its_purpose():
    silent = []
    for path in MODULES:
        text = path.read_text()
        opening = _source(path).docstring.partition("\n\n")[0]
        if text and not opening.rstrip().endswith((".", ":")) and not _is_test(path):
            silent.append(_name(path))
    assert not silent


def _is_test(path: Path) -> bool:
    """Whether the file name already says the purpose."""
    return path.is_relative_to(ROOT / "tests") and path.name.startswith(("test_", "conftest"))


def test_no_file_is_too_long():
    lengths = {_name(path): len(path.read_text().splitlines()) for path in MODULES}
    most = {name: LINES_MAX if name.startswith("rioni/") else TEST_LINES_MAX for name in lengths} | WHOLE
    assert not {name: length for name, length in lengths.items() if length > most[name]}


def test_no_module_has_a_meaningless_name():
    assert not [_name(path) for path in MODULES if {path.stem.strip("_"), path.parent.name} & GRAB_BAGS]


def test_only_known_places_refuse_requests():
    """The table of all ways, which takes steps away one by one, must cover all places that refuse."""
    found = {_name(path) for path in (ROOT / "rioni").rglob("*.py") if _source(path).refuses}
    assert {each for each in found if not each.startswith(PLACES)} == set()


def test_only_commands_print():
    printing = [_name(path) for path in _files("rioni/**/*.py") if path.name not in TALKING and _source(path).prints]
    assert not printing


def test_every_todo_names_an_issue():
    assert not [_name(path) for path in TEXTS if path != Path(__file__) and OPEN_TODO.search(path.read_text())]


def test_no_file_contains_a_path_of_one_machine():
    found = {_name(path): MACHINE_PATH.findall(path.read_text()) for path in TEXTS if path != Path(__file__)}
    assert not {name: paths for name, paths in found.items() if paths}


def test_names_and_texts_use_standard_terms():
    found = []
    for path in TEXTS:
        # Former names remain in the history of releases.
        if path.name not in {"CHANGELOG.md", Path(__file__).name}:
            lines = enumerate(path.read_text().splitlines(), 1)
            found += [f"{_name(path)}:{n}: {_advice(each)}" for n, line in lines for each in PRIVATE_WORD.findall(line)]
    assert not found


def test_texts_begin_as_sentences_or_noun_phrases():
    """Docstrings, help texts, comments and headings: "What is stored" says less than "The stored events"."""
    found = [f"{_name(path)}:{line}" for path in MODULES for line in _source(path).headless]
    for path in TEXTS:
        lines = ["", *path.read_text().splitlines()]
        begins = HEADING if path.suffix == ".md" else COMMENT
        pairs = enumerate(itertools.pairwise(lines), 1)
        found += [f"{_name(path)}:{n}" for n, (last, line) in pairs if begins.match(line) and "#" not in last[:20]]
    assert not found


def _advice(word: str) -> str:
    """The replacement for a word."""
    return next(
        f"{word}: {advice}" for each, advice in PRIVATE_WORDS.items() if re.fullmatch(each, word, re.IGNORECASE)
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Whoever reads", True),
        ("self._keeper", True),
        ("keeper_of(x)", True),
        ("ZooKeeper", False),
        ("a bookkeeper", False),
        ("gave up", True),
        ("history", False),
    ],
)
def test_private_words_are_recognised(text, found):
    assert bool(PRIVATE_WORD.search(text)) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see /home/jane/x", True),
        ('"/tmp/x"', True),
        ("http://host/work/y", False),
        ("~/work/y", False),
        ("{tmp_path}/tmp/x", False),
    ],
)
def test_paths_of_a_machine_are_recognised(text, found):
    assert bool(MACHINE_PATH.search(text)) == found


@pytest.mark.parametrize(
    ("text", "found"), [("TODO: later", True), ("TODO (#12): later", False), ("TODOS", False), ("`TODO`", False)]
)
def test_todos_without_an_issue_are_recognised(text, found):
    assert bool(OPEN_TODO.search(text)) == found
