"""Every step of the code that checks a right, found in the code, and a way to take one of them away in this process.

A step is a `raise` of an error that refuses, or a call of what leads to one: a method of a class that decides, such as
`AccessPolicy`, or a function that calls such a method. Without a step its error is not raised, and nothing that it
calls refuses anything.
"""

import ast
import builtins
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import rioni
from rioni.domain import errors
from rioni.http.problems import STATUSES


ROOT = Path(rioni.__file__).parents[1]
"""The folder that holds the imported package, which may be an installed one."""
PLACES = (
    "rioni/commands",
    "rioni/http/request_parsing.py",
    "rioni/http/middleware",
    "rioni/http/operations.py",
    "rioni/http/resources",
    "rioni/http/streaming/stream_tickets.py",
    "rioni/domain/access",
    "rioni/domain/streaming/batching.py",
)
"""Places of the steps; no other part of `rioni` refuses or decides anything (tests/test_tidy.py)."""
DECISION = "permits"
"""The function that holds lists of attributes against a subject: within a step that is away it permits everything."""
REFUSING = frozenset((HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.MISDIRECTED_REQUEST))
_STEPS = "__steps__"


def _refuses(error: type) -> bool:
    mapped = (STATUSES[cls] for cls in error.__mro__ if cls in STATUSES)
    return error is errors.ReadOnly or next(mapped, None) in REFUSING


REFUSALS = frozenset(name for name, each in vars(errors).items() if isinstance(each, type) and _refuses(each))
"""The names of the errors that say that the client must not do this, or not now."""


class Steps:
    """All steps, by their numbers, and the one that is away."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """The place and code of each step, such as `rioni/http/request_parsing.py check_history: access.history`."""
        self.seen: set[int] = set()
        """The steps that were taken since this was cleared."""
        self.raised: set[int] = set()
        """The steps taken that ended with an error, such as a refusal."""
        self.away: int | None = None
        self._depth = 0

    def call(self, number: int, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Take a step that is a call."""
        self.seen.add(number)
        if number != self.away:
            try:
                return function(*args, **named)
            except Exception:
                self.raised.add(number)
                raise
        self._depth += 1
        try:
            return function(*args, **named)
        finally:
            self._depth -= 1

    def refuses(self, number: int) -> bool:
        """Take a step that is a `raise`; whether it is to be raised."""
        self.seen.add(number)
        is_raised = number != self.away and not self._depth
        if is_raised:
            self.raised.add(number)
        return is_raised

    def permits_all(self) -> bool:
        """Whether the decision is part of a step that is away."""
        return self._depth > 0


@contextmanager
def watched_steps() -> Iterator[Steps]:
    """Let the code of this process tell of its steps, until the block ends."""
    steps = Steps()
    trees = {path: ast.parse(path.read_text()) for place in PLACES for path in _files(ROOT / place)}
    found = _Finder(trees)
    replaced: list[tuple[FunctionType, CodeType]] = []
    setattr(builtins, _STEPS, steps)
    try:
        for path, tree in trees.items():
            changed = _Marker(path, found, steps)
            code = compile(ast.fix_missing_locations(changed.visit(tree)), str(path), "exec", dont_inherit=True)
            if not changed.marked:
                continue
            codes = {each.co_qualname: each for each in _codes(code)}
            module = importlib.import_module(str(path.relative_to(ROOT).with_suffix("")).replace("/", "."))
            for function in _functions(module):
                if function.__code__.co_filename != str(path):
                    continue  # made by a decorator
                replaced.append((function, function.__code__))
                function.__code__ = codes[function.__code__.co_qualname]
        yield steps
    finally:
        for function, before in reversed(replaced):
            function.__code__ = before
        delattr(builtins, _STEPS)


class _Finder:
    """Finds the functions and methods that lead to a refusal."""

    def __init__(self, trees: Mapping[Path, ast.Module]) -> None:
        self.functions: set[tuple[str, str]] = set()
        """Module and name of those at the level of modules."""
        self.methods: set[tuple[str, str]] = set()
        """Class and name."""
        modules = {_module(path): tree for path, tree in trees.items()}
        self.imports = {name: _imports(tree) for name, tree in modules.items()}
        left = [
            (
                name,
                owner,
                function,
                [each for each in ast.walk(function) if is_refusal(each) or isinstance(each, ast.Call)],
            )
            for name, tree in modules.items()
            for owner, function in _defined(tree)
        ]
        while True:
            leading = [each for each in left if self._leads(each[0], each[1], each[3])]
            if not leading:
                return
            for module, owner, function, _ in leading:
                if owner:
                    self.methods.add((owner, function.name))
                else:
                    self.functions.add((module, function.name))
            left = [each for each in left if each not in leading]

    def is_step(self, module: str, owner: str, call: ast.Call) -> bool:
        """Whether a call leads to a refusal."""
        match call.func:
            case ast.Name(id=name):
                return name == DECISION or self.imports[module].get(name, (module, name)) in self.functions
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return (owner, name) in self.methods
            case ast.Attribute(value=ast.Attribute(attr=receiver) | ast.Name(id=receiver), attr=name):
                return any(method == name and _may_be(receiver, each) for each, method in self.methods) or (
                    receiver,
                    name,
                ) == ("route", "permission")
        return False

    def _leads(self, module: str, owner: str, parts: Sequence[ast.AST]) -> bool:
        return any(not isinstance(each, ast.Call) or self.is_step(module, owner, each) for each in parts)


def _defined(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions and methods of a module, each with the name of its class, if it has one."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield "", node
        elif isinstance(node, ast.ClassDef):
            yield from ((node.name, each) for each in node.body if isinstance(each, ast.FunctionDef))


class _Marker(ast.NodeTransformer):
    """Lets a module tell of its steps."""

    def __init__(self, path: Path, found: _Finder, steps: Steps) -> None:
        self._path, self._found, self._steps = path, found, steps
        self._module, self._where, self._owner = _module(path), [""], ""
        self.marked = False

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._owner = node.name
        self.generic_visit(node)
        self._owner = ""
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._where.append(node.name)
        self.generic_visit(node)
        self._where.pop()
        if node.name == DECISION:
            self.marked = True
            node.body[1:1] = ast.parse(f"if {_STEPS}.permits_all():\n    return True").body
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        self.generic_visit(node)
        if not is_refusal(node):
            return node
        number = self._number(f"raise {ast.unparse(node.exc)}" if node.exc else "raise")
        (marked,) = ast.parse(f"if {_STEPS}.refuses({number}):\n    pass").body
        assert isinstance(marked, ast.If)
        marked.body = [node]
        return marked

    def visit_Call(self, node: ast.Call) -> ast.AST:
        is_step = len(self._where) > 1 and self._found.is_step(self._module, self._owner, node)
        text = ast.unparse(node)
        self.generic_visit(node)
        if not is_step:
            return node
        (marked,) = ast.parse(f"{_STEPS}.call({self._number(text)})").body
        assert isinstance(marked, ast.Expr)
        assert isinstance(marked.value, ast.Call)
        marked.value.args += [node.func, *node.args]
        marked.value.keywords = node.keywords
        return marked.value

    def _number(self, text: str) -> int:
        self.marked = True
        name = f"{self._path.relative_to(ROOT)} {self._owner}.{self._where[-1]}: {text}"
        same = sum(each.startswith(name) for each in self._steps.names)
        self._steps.names.append(f"{name} ({same + 1})" if same else name)
        return len(self._steps.names) - 1


def is_refusal(node: ast.AST) -> bool:
    """Whether it raises an error that refuses."""
    if not isinstance(node, ast.Raise):
        return False
    error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return isinstance(error, ast.Name) and error.id in REFUSALS


def _may_be(receiver: str, owner: str) -> bool:
    """Whether a name is one for objects of a class: `_access` for `AccessPolicy`, `unit_of_work` for `UnitOfWork`."""
    named = receiver.strip("_").removesuffix("s").replace("_", "")
    return len(named) > 3 and named in owner.lower()


def _files(place: Path) -> Sequence[Path]:
    return [place] if place.is_file() else sorted(place.rglob("*.py"))


def _module(path: Path) -> str:
    return str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")


def _imports(tree: ast.Module) -> Mapping[str, tuple[str, str]]:
    """Module and name of what a module has imported, by the name that it has there."""
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """The functions and methods that a module defines."""
    for each in vars(module).values():
        if inspect.isclass(each) and each.__module__ == module.__name__:
            for member in vars(each).values():
                yield from _of(member, module)
        else:
            yield from _of(each, module)


def _of(member: object, module: ModuleType) -> Sequence[FunctionType]:
    found = getattr(member, "fget", None) or inspect.unwrap(getattr(member, "__func__", member))  # type: ignore[arg-type]
    return [found] if isinstance(found, FunctionType) and found.__module__ == module.__name__ else []
