"""JSON and YAML of users, read so that no value changes, with the line of each member."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import yaml

from rioni.domain.texts import visible


# YAML by the rules of YAML 1.2, so that `no` and dates are texts, with the line of each member.

VALUES_MAX = 1_000_000
"""Values of a document with what aliases repeat, which may be far more than the text has."""

Path = tuple[str | int, ...]

_STANDARD = "tag:yaml.org,2002:"
_CONSTANTS = {"null": None, "true": True, "false": False, "": None, "~": None}
_INTEGER = r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
_FINITE = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")
_OLD_DIRECTIVE = re.compile(r"^%YAML[ \t]+1\.[01]\b", re.MULTILINE)
_NOT_IN_JSON = r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
_LINE_BREAKS = "\r\x85\u2028\u2029"
"""The line breaks of YAML 1.1, including the usual one."""
_PLAIN = (
    ("null", r"|~|null|Null|NULL", ["", "~", "n", "N"]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", _INTEGER, list("-+0123456789")),
    ("float", f"{_FINITE}|{_NOT_IN_JSON}", list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
)


class NotYaml(ValueError):
    """A text that is not YAML, or has values that JSON can't represent.

    Args:
        reason: the error.
        line: its line, from 1.
    """

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(f"line {line}: {reason}")
        self.reason = reason
        self.line = line


class Document(NamedTuple):
    """A document of a file.

    Args:
        value: a JSON value.
        line: where it begins, from 1.
        node: the YAML that the value was read from, if it was.
    """

    value: Any
    line: int
    node: yaml.Node | None = None

    def line_of(self, path: Path) -> int:
        """The line of a value, or of the nearest one around it."""
        line, node, reading = self.line, self.node, _Reading()
        for name in path:
            found = None if node is None else reading.member(node, name)
            if found is None:
                break
            place, node = found
            line = _line(place)
        return line


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # the fast one is optional
    # These replace the rules of YAML 1.1.
    yaml_implicit_resolvers: Mapping[str, Any] = {}


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, _data: Any) -> bool:
        return True


for _name, _pattern, _first in _PLAIN:
    _Loader.add_implicit_resolver(_STANDARD + _name, re.compile(rf"(?:{_pattern})\Z"), _first)
    # In addition to the rules of YAML 1.1: a text that either version would read as another type is quoted.
    _Dumper.add_implicit_resolver(_STANDARD + _name, re.compile(rf"(?:{_pattern})\Z"), _first)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    # Escapes are possible in double quotation marks only.
    escaped = any(char in text for char in _LINE_BREAKS) or visible(text) != text
    return dumper.represent_scalar(f"{_STANDARD}str", text, style='"' if escaped else "|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def read(text: str) -> Iterator[Document]:
    """The documents of a text; those that are empty are left out.

    Raises:
        NotYaml: the text is not YAML, or has a value that JSON does not know; the documents before were read.
    """
    if directive := _OLD_DIRECTIVE.search(text):
        line = text.count("\n", 0, directive.start()) + 1
        raise NotYaml(f"{directive[0]} asks for other rules than those of YAML 1.2; remove this line", line)
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            value = _Reading().value_of(node)
            if value is not None or node.value:
                yield Document(value, _line(node), node)
    except yaml.MarkedYAMLError as ex:
        mark = ex.problem_mark or ex.context_mark
        # An error at the end of the text is reported for the last line.
        line = min(mark.line, len(text.splitlines()) - 1) + 1 if mark else 1
        raise NotYaml(" ".join(filter(None, [ex.context, ex.problem])), line) from ex
    except yaml.reader.ReaderError as ex:  # a character that YAML does not allow
        raise NotYaml(str(ex).splitlines()[0], text.count("\n", 0, _refused_at(text)) + 1) from ex
    except RecursionError as ex:
        raise NotYaml("values are nested too deeply, or contain themselves", 1) from ex
    finally:
        loader.dispose()


def written(value: Any) -> str:
    """A JSON value as YAML that people read and change; `read` gives the same value again."""
    return visible(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100))


def exact_number(text: str) -> float:
    """A decimal number as a float; raises ValueError, with the reason, if a float has another value."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:100]} is larger than a number of JSON can be")
    try:
        is_exact = Decimal(text) == Decimal(repr(number))
    except ArithmeticError:  # an exponent that no decimal has
        is_exact = False
    if not is_exact:
        raise ValueError(f"{text[:100]} has more digits than a number keeps: write {number!r}, or a text in quotes")
    return number


def _refused_at(text: str) -> int:
    found = yaml.reader.Reader.NON_PRINTABLE.search(text)
    return found.start() if found else 0


class _Reading:
    """Turns the nodes of a document into JSON values."""

    def __init__(self) -> None:
        self._count = 0

    def value_of(self, node: yaml.Node) -> Any:
        if isinstance(node, yaml.MappingNode):
            return {name: self.value_of(value) for name, (_, value) in self._members(node).items()}
        self._count_one(node)
        if isinstance(node, yaml.SequenceNode):
            _check_tag(node, "seq")
            return [self.value_of(each) for each in node.value]
        assert isinstance(node, yaml.ScalarNode)
        return _scalar(node)

    def member(self, node: yaml.Node, name: str | int) -> tuple[yaml.Node, yaml.Node] | None:
        """The node where a member or an item of a node begins, and that of its value."""
        if isinstance(node, yaml.SequenceNode) and isinstance(name, int) and name < len(node.value):
            return node.value[name], node.value[name]
        return self._members(node).get(name) if isinstance(node, yaml.MappingNode) else None

    def _members(self, node: yaml.MappingNode) -> dict[str | int, tuple[yaml.Node, yaml.Node]]:
        """The names and values of a mapping, by name, which is a text whatever it looks like: 404, on."""
        self._count_one(node)
        _check_tag(node, "map")
        members: dict[str | int, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise NotYaml("the name of a member is a text", _line(key))
            if key.value in members:
                raise NotYaml(f'"{key.value}" is there twice', _line(key))
            members[key.value] = key, value
        if "<<" in members and members["<<"][0].tag == f"{_STANDARD}merge":
            _, merged = members.pop("<<")
            # The mapping's own members win over merged ones, and those of earlier mappings over those of later ones.
            further: dict[str | int, tuple[yaml.Node, yaml.Node]] = {}
            for each in merged.value if isinstance(merged, yaml.SequenceNode) else [merged]:
                if not isinstance(each, yaml.MappingNode):
                    raise NotYaml("expected a mapping for merging", _line(each))
                found = self._members(each)
                further |= {name: found[name] for name in found if name not in members and name not in further}
            members = further | members
        return members

    def _count_one(self, node: yaml.Node) -> None:
        self._count += 1
        if self._count > VALUES_MAX:
            raise NotYaml(f"a document has at most {VALUES_MAX:,} values", _line(node))


def _check_tag(node: yaml.Node, *kinds: str) -> None:
    if node.tag.removeprefix(_STANDARD) not in kinds:
        raise NotYaml(f"the tag {node.tag} means nothing here", _line(node))


def _scalar(node: yaml.ScalarNode) -> Any:
    _check_tag(node, "null", "bool", "int", "float", "str", "merge")
    kind = node.tag.removeprefix(_STANDARD)
    if kind in ("str", "merge"):
        return node.value
    if kind in ("int", "float") and _LEADING_ZERO.match(node.value):
        raise NotYaml(
            f'{node.value} is one number in YAML 1.1 and another one in YAML 1.2: write "{node.value}" for the text, '
            "or a number without zeros before it",
            _line(node),
        )
    try:
        if kind in ("null", "bool"):
            return _CONSTANTS[node.value.lower()]
        return _integer(node.value) if kind == "int" else _float(node.value)
    except KeyError as ex:
        raise NotYaml(f"{node.value} is no number, null, true or false that JSON knows", _line(node)) from ex
    except ValueError as ex:
        raise NotYaml(str(ex), _line(node)) from ex


def _integer(text: str) -> int:
    return int(text, 0) if text.startswith(("0o", "0x")) else int(text)


def _float(text: str) -> float:
    if not re.fullmatch(_FINITE, text):
        raise ValueError(f"{text} is no number that JSON knows")
    return exact_number(text)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


# JSON of definitions, read so that no value changes: what Python would round or drop is an error with its line.


def json_values(text: str) -> Iterator[Document]:
    """JSON values one after the other; raises NotYaml, also if a value would change."""
    decoder = json.JSONDecoder(object_pairs_hook=_members, parse_float=exact_number, parse_constant=_not_json)
    end, at, line = 0, _after_spaces(text, 0), 1
    while at < len(text):
        line += text.count("\n", end, at)
        try:
            value, end = decoder.raw_decode(text, at)
            json.dumps(value, ensure_ascii=False).encode()
        except json.JSONDecodeError as ex:
            raise NotYaml(f"is not JSON: {ex.msg}", ex.lineno) from ex
        except UnicodeEncodeError as ex:
            raise NotYaml("is not JSON: a text has half of a surrogate pair", line) from ex
        except (ValueError, RecursionError) as ex:
            raise NotYaml(f"is not JSON: {ex}", line) from ex
        yield Document(value, line)
        line += text.count("\n", at, end)
        at = _after_spaces(text, end)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            raise ValueError(f'"{name}" is there twice')
        names.add(name)
    return dict(pairs)


def _not_json(constant: str) -> None:
    raise ValueError(constant)


def _after_spaces(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at
