"""Writes classes as Python source: as msgspec structs, or as dataclasses."""

import keyword
import re
import textwrap
from collections.abc import Iterable, Mapping

from rioni.client.codegen.model_classes import Member, ModelClass
from rioni.client.codegen.python_types import quoted


STYLES = ("msgspec", "dataclass")
WIDTH = 110

_TAKEN = frozenset(
    ("bool", "dict", "float", "int", "list", "str", "dataclass", "dt", "msgspec", "Any", "Literal", "UUID", "TypeAlias")
)
"""Names that annotations use, so that a member of this name would hide them."""
_BASES = {
    "msgspec": "class {name}(msgspec.Struct, kw_only=True, omit_defaults=True):",
    "dataclass": "@dataclass(kw_only=True)\nclass {name}:",
}


def source(title: str, events: Mapping[str, str], classes: Mapping[str, ModelClass], *, style: str) -> str:
    """A module with the classes that events need.

    Args:
        title: a description of the module, as sentences.
        events: the type of the events, by the name that it gets.
        classes: all classes, by name.
        style: one of `STYLES`.

    Raises:
        ValueError: there is no such style, or a member can't have its name in a dataclass.
    """
    if style not in STYLES:
        raise ValueError(f"{style!r} is not a style; there are {', '.join(STYLES)}")
    used = _used(events, classes)
    taken = _TAKEN | set(used)
    blocks = [_class(each, taken, style) for each in used.values()]
    blocks += [f"{name}: TypeAlias = {text}\n" for name, text in events.items() if text != name]
    texts = [*events.values(), *(member.type.text for each in used.values() for member in each.members)]
    body = "\n\n".join(blocks)
    aliases = any(name != text for name, text in events.items())
    imports = _imports(" ".join(texts), style, aliases=aliases, msgspec="msgspec." in body)
    return f'"""{_escaped(title)}"""\n\n{imports}\n\n\n{body}'


def _used(events: Mapping[str, str], classes: Mapping[str, ModelClass]) -> dict[str, ModelClass]:
    """The classes that events consist of, beginning with those of whole events."""
    used: dict[str, ModelClass] = {}
    texts = [*events.values()]
    while texts:
        found = [name for name in re.findall(r"(?<![\"\w.])[A-Za-z]\w*(?![\"\w])", texts.pop(0)) if name in classes]
        for name in found:
            if name not in used:
                used[name] = classes[name]
                texts += [member.type.text for member in classes[name].members]
    return used


def _imports(annotations: str, style: str, *, aliases: bool, msgspec: bool) -> str:
    typing = [name for name in ("Any", "Literal") if name in annotations] + (["TypeAlias"] if aliases else [])
    standard = [
        "import datetime as dt" if "dt." in annotations else "",
        "from dataclasses import dataclass" if style == "dataclass" else "",
        f"from typing import {', '.join(typing)}" if typing else "",
        "from uuid import UUID" if "UUID" in annotations else "",
    ]
    used = ["\nimport msgspec"] if msgspec else []
    return "\n".join(["from __future__ import annotations\n", *filter(None, standard), *used])


def _class(model: ModelClass, taken: Iterable[str], style: str) -> str:
    lines = [_BASES[style].format(name=model.name)]
    if model.description:
        lines += [*_docstring(model.description), ""]
    names: set[str] = set(taken)
    for member in model.members:
        name = _member_name(member.name, names)
        names.add(name)
        lines.append(f"    {name}: {_annotation(member, style)}{_default(model, member, name, style)}")
        lines += _docstring(member.description) if member.description else ()
    return "\n".join(lines) + "\n"


def _annotation(member: Member, style: str) -> str:
    text = member.type.text
    if member.required or text == "Any":
        return text
    # A member that may be null needs another mark of its absence; msgspec leaves None out of structs only.
    if member.type.nullable or style == "dataclass":
        return f"{text} | msgspec.UnsetType"
    return f"{text} | None"


def _default(model: ModelClass, member: Member, name: str, style: str) -> str:
    value = None
    if not member.required:
        unset = member.type.nullable or style == "dataclass"
        value = "msgspec.UNSET" if unset else "None"
    if name == member.name:
        return "" if value is None else f" = {value}"
    if style == "dataclass":
        raise ValueError(
            f"The member {member.name!r} of {model.name} can't have this name in a dataclass: use the style msgspec"
        )
    return f" = msgspec.field(name={quoted(member.name)}{'' if value is None else f', default={value}'})"


def _member_name(name: str, taken: set[str]) -> str:
    """The name of a member in Python: its own, if that is possible."""
    found = re.sub(r"[^A-Za-z0-9_]", "_", name)
    if not found or found[0].isdigit() or found.startswith("__"):
        found = f"member_{found.lstrip('_')}"
    while keyword.iskeyword(found) or found in taken:
        found += "_"
    return found


def _docstring(text: str) -> list[str]:
    return textwrap.wrap(
        f'"""{_escaped(text)}"""',
        WIDTH,
        initial_indent="    ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _escaped(text: str) -> str:
    """A text that stays within a docstring."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return printable.replace("\\", "\\\\").replace('"', "'")
