"""Private attributes of dependencies are used in `rioni/patches` alone, where a test watches each of them."""

import ast
import importlib
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path


ROOT = Path(__file__).parents[1]
PATCHES = ROOT / "rioni/patches"
DECISION = ROOT / "docs/decisions/0048-dependencies.md"
# The standard library documents these, and confluent-kafka the codes of its errors.
DOCUMENTED = re.compile(r"os\._exit|sys\._current_frames|KafkaError\._[A-Z_]+|.*\._(?:replace|asdict|fields|make)")
PRIVATE = re.compile(r"_[A-Za-z]\w*")
BY_NAME = {"getattr", "setattr", "hasattr", "delattr"}
VERSIONS = re.compile(r"^Versions: (\S+)\.$", re.MULTILINE)


def _modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / "rioni").rglob("*.py")):
        if not path.is_relative_to(PATCHES):
            yield path, ast.parse(path.read_text())


def _used(tree: ast.Module) -> Iterator[tuple[ast.AST, str, str]]:
    """The private attributes that a module uses, each with the text of the expression; dunder names are public."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) if PRIVATE.fullmatch(name):
                yield node, name, ast.unparse(node)
            case ast.Call(func=ast.Name(id=function), args=[_, ast.Constant(value=str(name)), *_]) if (
                function in BY_NAME and PRIVATE.fullmatch(name)
            ):
                yield node, name, ast.unparse(node)


def _defined(tree: ast.AST) -> set[str]:
    """The names that a module or class defines itself, as functions, variables and attributes of `self`."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(ast.Name(id="self"), name, ast.Store()):
                found.add(name)
    return found


def _outside(tree: ast.Module) -> dict[str, str]:
    """The names that a module imports from dependencies, with the module that has each."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.asname or each.name.partition(".")[0]: each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {each.asname or each.name: node.module for each in node.names}
    own = {"rioni", *sys.stdlib_module_names}
    return {name: module for name, module in found.items() if module.partition(".")[0] not in own}


def test_private_attributes_of_other_objects_are_not_used():
    found = []
    trees = {".".join(path.relative_to(ROOT).with_suffix("").parts): (path, tree) for path, tree in _modules()}
    defined = {module: _defined(tree) for module, (_, tree) in trees.items()}
    for module, (path, tree) in trees.items():
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        own = set().union(*(defined[each] for each in {module, *imported} if each in defined))
        for node, name, text in _used(tree):
            if name not in own and not DOCUMENTED.fullmatch(text) and not text.startswith(("self.", "cls.")):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {text}")
    assert not found, "\n".join(found)


def test_private_modules_and_names_of_dependencies_are_not_imported():
    found = []
    for path, tree in _modules():
        for node in ast.walk(tree):
            names = [each.name for each in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = getattr(node, "module", None) or ""
            parts = [part for name in names for part in f"{module}.{name}".split(".")]
            if parts[:1] not in ([""], ["rioni"]) and any(map(PRIVATE.fullmatch, parts)):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {module} {names}")
    assert not found, "\n".join(found)


def test_attributes_of_dependencies_are_not_replaced():
    found = []
    for path, tree in _modules():
        outside = _outside(tree)
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(ast.Name(id=name), ctx=ast.Store() | ast.Del()) if name in outside:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert not found, "\n".join(found)


def _base_names(base: type) -> set[str]:
    """The private names of a class of a dependency: its methods, and the attributes that its source names."""
    try:
        source = inspect.getsource(base)
    except (OSError, TypeError):  # written in C
        source = ""
    return {name for name in vars(base) if PRIVATE.fullmatch(name)} | set(re.findall(r"\bself\.(_[A-Za-z]\w*)", source))


def test_subclasses_do_not_use_or_replace_private_attributes_of_a_base_of_a_dependency():
    found = []
    for path, tree in _modules():
        outside = _outside(tree)
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef) or not {ast.unparse(each).split(".")[0] for each in node.bases} & {
                *outside
            }:
                continue
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            names = {name for _, name, _ in _used(node)} | _defined(node)
            kind = getattr(module, node.name, None)
            bases = [] if kind is None else [each for each in kind.__mro__ if not each.__module__.startswith("rioni.")]
            for base in bases:
                found += [
                    f"{path.relative_to(ROOT)}: {node.name}.{name} of {base.__module__}.{base.__name__}"
                    for name in sorted(names & _base_names(base))
                ]
    assert not found, "\n".join(found)


def _requirements() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())}


def _bounds(requirements: set[str]) -> dict[str, str]:
    """The upper bound of each requirement by the name of the distribution; empty if it has none."""
    split = (re.fullmatch(r"([\w-]+)(?:\[[\w,-]+\])?([^<]*)(<\S+)?", each) for each in requirements)
    return {found[1]: found[3] or "" for found in split if found is not None and found[1] != "rioni"}


def test_the_decision_about_dependencies_has_a_line_for_each_with_its_bound():
    rows = re.findall(r"^\| ([\w-]+) \|[^|]+\|[^|]*\| ?(<[\w.]+)?[^|]*\|$", DECISION.read_text(), re.MULTILINE)
    assert dict(rows) == _bounds(_requirements()) | {"Dependency": ""}
    assert len(rows) == len(dict(rows))


def test_each_patch_gives_its_reason_and_the_versions_that_pyproject_allows():
    allowed = _requirements()
    patches = {path for path in PATCHES.glob("*.py") if path.stem != "__init__"}
    wrong = []
    for path in patches:
        doc = ast.get_docstring(ast.parse(path.read_text())) or ""
        versions = VERSIONS.search(doc)
        bounded = versions is not None and (versions[1] in allowed and "<" in versions[1])
        if "Reason: " not in doc or "On an upgrade" not in doc or not (bounded or path.stem == "standard_library"):
            wrong.append(path.name)
    assert patches
    assert not wrong
    assert {path.name for path in (ROOT / "tests/patches").glob("test_*.py")} == {
        f"test_{path.name}" for path in patches
    }
