"""Decides whether a compatibility mode allows a change of an Avro schema, and computes the next version.

Source: reference schemas#avro-evolution.

As for JSON, the current mode of the event type decides: it is not possible to relax the mode and break the schema in
one step (15.2 #5). A change towards mode compatible has to satisfy that mode, too.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UNSET

from rioni.domain.avro.nodes import Array, Enum, Field, Fixed, Map, Named, Node, Primitive, Record, Union, type_name
from rioni.domain.avro.parsing import parse_event_schema
from rioni.domain.errors import Invalid
from rioni.domain.schemas.change import Level
from rioni.domain.schemas.evolution import next_schema_version
from rioni.domain.texts import first_of


# Checks whether data of one schema can be read with another: the schema resolution of the Avro specification.
#
# Stricter than the specification in one point: if several branches of a reader's union match at first glance, the first
# one has to match completely, because readers take that one.

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""Promotions: the types to which a reader may convert a primitive type of the writer."""


class Incompatibility(msgspec.Struct, frozen=True):
    """One incompatibility."""

    type: str
    """`NAME_MISMATCH`, `FIXED_SIZE_MISMATCH`, `MISSING_ENUM_SYMBOLS`, `READER_FIELD_MISSING_DEFAULT_VALUE`,
    `TYPE_MISMATCH` or `MISSING_UNION_BRANCH`."""
    location: str
    """A pointer into the reader's schema, such as `/fields/2`."""
    message: str

    def __str__(self) -> str:
        return f"{{ type:{self.type}, location:{self.location}, message:{self.message} }}"


def incompatibilities(reader: Node, writer: Node) -> list[Incompatibility]:
    """All incompatibilities of a reader's with a writer's schema; empty if all of the writer's data can be read.

    Each part of the writer is compared with one part of the reader, selected among 100 branches at most.
    """
    return list(_compare(reader, writer, ""))


def _compare(reader: Node, writer: Node, place: str) -> Iterator[Incompatibility]:
    match reader, writer:
        case _, Union(branches=branches):
            yield from _each(reader, branches, place)
        case Union(branches=branches), _:
            yield from _any(branches, writer, place)
        case Array(items=reads), Array(items=writes):
            yield from _compare(reads, writes, f"{place}/items")
        case Map(values=reads), Map(values=writes):
            yield from _compare(reads, writes, f"{place}/values")
        case ((Fixed() | Enum() | Record()), (Fixed() | Enum() | Record())) if type(reader) is type(writer):
            yield from _named(reader, writer, place)
        case Primitive(), Primitive() if _reads(reader.type, writer.type):
            return
        case _:
            yield _mismatch(reader, writer, place)


def _each(reader: Node, branches: Sequence[Node], place: str) -> Iterator[Incompatibility]:
    """A writer's union: the reader must be able to read every branch."""
    for branch in branches:
        if isinstance(reader, Union):
            yield from _compare(reader, branch, place)
        elif any(_compare(reader, branch, place)):
            yield _mismatch(reader, branch, place)


def _any(branches: Sequence[Node], writer: Node, place: str) -> Iterator[Incompatibility]:
    """A reader's union: the first branch that matches at first glance is taken."""
    for index, branch in enumerate(branches):
        if _looks_right(branch, writer):
            yield from _compare(branch, writer, f"{place}/{index}")
            return
    message = f"reader union lacking writer type: {_type(writer)}"
    yield Incompatibility("MISSING_UNION_BRANCH", place or "/", message)


def _looks_right(reader: Node, writer: Node) -> bool:
    """Whether readers select a branch, before its contents are compared."""
    match reader, writer:
        case (Union(), _) | (_, Union()):
            return True
        case (Array(items=reads), Array(items=writes)) | (Map(values=reads), Map(values=writes)):
            return _looks_right(reads, writes)
        case Fixed(size=size), Fixed(size=other) if size != other:
            return False
        case ((Fixed() | Enum() | Record()), (Fixed() | Enum() | Record())) if type(reader) is type(writer):
            return _same_name(reader, writer)
        case Primitive(), Primitive():
            return _reads(reader.type, writer.type)
        case _:
            return False


def _named(reader: Named, writer: Named, place: str) -> Iterator[Incompatibility]:
    if not _same_name(reader, writer):
        yield Incompatibility("NAME_MISMATCH", f"{place}/name", f"expected: {writer.name}")
        return
    match reader, writer:
        case Fixed(size=size), Fixed(size=written) if size != written:
            message = f"expected: {written}, found: {size}"
            yield Incompatibility("FIXED_SIZE_MISMATCH", f"{place}/size", message)
        case Enum(symbols=symbols, default=None), Enum(symbols=written):
            if missing := sorted(set(written) - set(symbols)):
                yield Incompatibility("MISSING_ENUM_SYMBOLS", f"{place}/symbols", f"[{', '.join(missing)}]")
        case Record(fields=fields), Record(fields=written):
            yield from _fields(fields, written, place)


def _fields(fields: Sequence[Field], written: Sequence[Field], place: str) -> Iterator[Incompatibility]:
    sources = {field.name: field for field in written}
    for index, field in enumerate(fields):
        source = next((sources[name] for name in (field.name, *field.aliases) if name in sources), None)
        if source is not None:
            yield from _compare(field.type, source.type, f"{place}/fields/{index}/type")
        elif field.default is UNSET:
            yield Incompatibility("READER_FIELD_MISSING_DEFAULT_VALUE", f"{place}/fields/{index}", field.name)


def _mismatch(reader: Node, writer: Node, place: str) -> Incompatibility:
    message = f"reader type: {_type(reader)} not compatible with writer type: {_type(writer)}"
    return Incompatibility("TYPE_MISMATCH", place or "/", message)


def _reads(reader: str, writer: str) -> bool:
    return reader == writer or reader in _PROMOTIONS.get(writer, ())


def _same_name(reader: Named, writer: Named) -> bool:
    """Names are compared without their namespaces, aliases with them."""
    return _simple(reader.name) == _simple(writer.name) or writer.name in reader.aliases


def _simple(name: str) -> str:
    return name.rpartition(".")[2]


def _type(node: Node) -> str:
    return type_name(node).upper()


NAMED_MAX = 50


def evolve_avro_schema(
    *, original: str, submitted: str, original_mode: str, submitted_mode: str, version: str
) -> str | None:
    """Decide on a new Avro schema of an event type whose schema is Avro already.

    Args:
        original: the text of the current schema.
        submitted: the text of the new one.
        original_mode: the current compatibility mode.
        submitted_mode: the new one.
        version: the version of the original.

    Returns:
        The version of the submitted schema, None if both are equivalent.

    Raises:
        Invalid: the submitted schema is not valid, or the mode refuses the change; the message names the parts that
            can't be read.
    """
    before, after = parse_event_schema(original), parse_event_schema(submitted)
    if before == after:
        return None
    refused: list[Incompatibility] = []
    if original_mode != "none":
        refused += incompatibilities(before, after)
    if original_mode == "compatible" or (original_mode, submitted_mode) == ("forward", "compatible"):
        refused += incompatibilities(after, before)
    if refused:
        raise Invalid(f"Failed to evolve avro schema due to [{first_of([*map(str, refused)], NAMED_MAX)}]")
    return next_schema_version(version, Level.MAJOR)
