"""Validates events against the effective schema, with the contract's error texts.

Source: reference schemas#violation-texts.

jsonschema-rs follows the drafts to the letter. Where the contract describes a less exact library, the drafts hold:

- `enum` and `const` are checked together with their siblings, such as `type`; combining keywords may stand together.
- From draft 6 on `1.0` is an integer, as those drafts say; in draft 4, the default, it is not.
- What fails inside `allOf` is reported by itself, instead of `only 1 subschema matches out of 2`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from jsonschema_rs import ValidationError
from jsonschema_rs import ValidationErrorKind as Kind

from rioni.domain.schemas.effective_schema import EffectiveSchema
from rioni.domain.schemas.patterns import MESSAGES, cut
from rioni.domain.schemas.validation_cost import ValidationCost, size_of
from rioni.domain.schemas.walker import walk
from rioni.domain.timestamps import DATE_TIME


VIOLATIONS_MAX = 100
"""Maximum number of violations listed in an error; all are counted."""
TEXT_CHARACTERS_MAX = 200
"""Values in messages are cut to this length."""
WORK_MAX = 4_000
"""The maximum product of the sizes of schema and event for which all violations are collected: the library builds them,
at about 9 µs and 2.6 kB each, before it returns the first."""

OCCURRED_AT = ["metadata", "occurred_at"]
EXPLAINED_VALUES_MAX = 100_000
"""PERF: the library copies the value that violates the schema; with this many inner values it takes 10 ms."""


Error = tuple[int, str]
"""The index of the first event that is not valid, and its error."""


class EventValidator:
    """Validates the events of one version of an event type.

    PERF: 0.4 µs for a good event of 200 bytes, 0.3 µs within a batch. The errors of a bad one are searched in a
    second pass.
    """

    def __init__(self, schema: EffectiveSchema) -> None:
        """Compile the schema, which `check_schema` has accepted."""
        self._validator = schema.compile()
        self._work = ValidationCost(schema)
        self._hints = _HINTS if schema.has_metadata else {}
        self._combines = any("anyOf" in node or "oneOf" in node for _, node in walk(schema.document))
        self.is_valid = self._validator.is_valid
        """Whether an event, as parsed JSON, is valid."""
        self.all_valid = schema.compile_for_batch().is_valid
        """Whether all events of a list are valid."""

    @property
    def patterns_bytes(self) -> int:
        """An estimate of the memory that its compiled patterns take."""
        return self._work.patterns_bytes

    def first_error(self, events: Sequence[Mapping[str, Any]], sizes: Sequence[int], bytes_max: int) -> Error | None:
        """Check the events of a batch in order, for their size and against the schema.

        Args:
            events: the decoded events.
            sizes: the sizes of their JSON, in bytes.
            bytes_max: maximum size of one event.
        """
        # Validated in parts that don't block the process too long.
        for portion in self._work.portions(sizes):
            largest = max(sizes[portion], default=0)
            suspicious = largest > bytes_max or self.takes_long(largest)
            if not suspicious and self.all_valid(events[portion]):
                continue
            for index in range(portion.start, portion.stop):
                if (detail := self._error_of(events[index], sizes[index], bytes_max)) is not None:
                    return index, detail
        return None

    def _error_of(self, event: Mapping[str, Any], size: int, bytes_max: int) -> str | None:
        """The error of one event; one that is too large or too expensive is not validated."""
        if size > bytes_max:
            return too_large(size, bytes_max)
        if self.takes_too_long(event, size):
            return "#: the event is too large for this schema: checking it would take too long"
        return None if self.is_valid(event) else self.explain(event)

    def takes_long(self, size: int) -> bool:
        """Whether validating a batch of this size may block the process too long, judging by its size."""
        return size > self._work.portion_bytes

    def takes_too_long(self, event: Mapping[str, Any], size: int) -> bool:
        """Whether validating an event of this size would block the process too long."""
        return self.takes_long(size) and self._work.is_too_much(event)

    def explain(self, event: Mapping[str, Any]) -> str:
        """The error text of an invalid event, as the contract words it.

        A large event is explained by its first violation, so that the time this takes stays bounded.
        """
        values = size_of(event).values
        if values * self._work.paths <= WORK_MAX:
            return self._report(list(self._validator.iter_errors(event)))
        # For combined schemas the library would build all violations of all branches.
        if not self._combines and values <= EXPLAINED_VALUES_MAX:
            try:
                self._validator.validate(event)
            except ValidationError as ex:
                return self._report([ex])
        return "#: the event does not match the schema, and is too large to say where"

    def _report(self, errors: Sequence[ValidationError]) -> str:
        return "\n".join(line + self._hints.get(line, "") for line in _lines(errors))


class NoJsonSchema:
    """Refuses all events: their event type never had a schema that events in JSON could be validated against."""

    patterns_bytes = 0
    """Zero, since it has no patterns."""

    def __init__(self, event_type: str) -> None:
        """Remember the name of the event type."""
        self._event_type = event_type

    def first_error(self, _events: Sequence[Any], sizes: Sequence[int], bytes_max: int) -> Error | None:
        """The first event is refused, if there is one."""
        if not sizes:
            return None
        if sizes[0] > bytes_max:
            return 0, too_large(sizes[0], bytes_max)
        return 0, f"No json_schema found for event type: {self._event_type}"

    def takes_long(self, _size: int) -> bool:
        """Refusing takes no time."""
        return False


def too_large(size: int, bytes_max: int) -> str:
    """The error of an event that is larger than the limit."""
    return f"Event too large: {size} bytes, max size is {bytes_max} bytes"


# --- The contract's texts ---


class _Violation(NamedTuple):
    """One violation: its line, followed by those of its causes, and how many violations that makes."""

    lines: list[str]
    weight: int = 1


_THE_BROKERS = ": the broker sets it, leave it out"
_HINTS = {
    **{
        f"#/metadata: extraneous key [{name}] is not permitted": _THE_BROKERS
        for name in ("published_by", "received_at", "version")
    },
    "#/metadata: extraneous key [partition_compaction_key] is not permitted": (
        ": it is for event types with cleanup_policy compact or compact_and_delete"
    ),
}
"""Texts appended to lines about metadata as the contract defines it (reference schemas#metadata)."""


def _lines(errors: Sequence[ValidationError]) -> list[str]:
    """The lines of violations: a single one by itself; several after a line with their number.

    The time of occurrence is checked only if everything else is right (reference schemas#effective-schema, table of
    metadata).
    """
    others = [error for error in errors if not _is_about_time(error)]
    if not others:
        return [f"#/metadata/occurred_at:{MESSAGES[DATE_TIME]}"]
    violations = [violation for error in others for violation in _violations(error)]
    lines = [line for violation in violations[:VIOLATIONS_MAX] for line in violation.lines]
    if len(violations) > VIOLATIONS_MAX:
        lines.append("...")
    if len(violations) > 1:
        lines.insert(0, f"#: {sum(violation.weight for violation in violations)} schema violations found")
    return lines


def _is_about_time(error: ValidationError) -> bool:
    return error.instance_path == OCCURRED_AT and error.kind.name == "pattern"


def _violations(error: ValidationError) -> Iterator[_Violation]:
    pointer = "#" + "".join(f"/{segment}" for segment in error.instance_path)
    match error.kind:
        case Kind.AdditionalProperties(unexpected=names):
            for name in names:
                yield _Violation([f"{pointer}: extraneous key [{_shown(name)}] is not permitted"])
        case Kind.Type(types=types):
            found = _found(error.instance)
            causes = [
                _Violation([f"{pointer}: expected type: {_EXPECTED[expected]}, found: {found}"])
                for expected in sorted(types)
            ]
            yield causes[0] if len(causes) == 1 else _combined(pointer, len(causes), causes)
        case Kind.AnyOf(context=branches) | Kind.OneOfNotValid(context=branches):
            causes = [violation for branch in branches for cause in branch for violation in _violations(cause)]
            yield _combined(pointer, len(branches), causes)
        case Kind.PropertyNames(error=cause):
            yield _Violation([f"{pointer}: {_text(cause)}"])
        case _:
            yield _Violation([f"{pointer}: {_text(error)}"])


def _combined(pointer: str, total: int, causes: Sequence[_Violation]) -> _Violation:
    lines = [line for cause in causes[:VIOLATIONS_MAX] for line in cause.lines]
    first = f"{pointer}: no subschema matched out of the total {total} subschemas"
    return _Violation([first, *lines], sum(cause.weight for cause in causes))


def _text(error: ValidationError) -> str:
    """The contract's text for a violation that is a single line."""
    kind, value = error.kind, error.instance
    if (texts := _TEXTS.get(kind.name)) is not None:
        return texts(kind.value, value)
    match kind:
        case Kind.Required(property=name):
            if error.schema_path[-1] == "dependencies":
                return f"property [{_shown(name)}] is required"
            return f"required key [{_shown(name)}] not found"
        case Kind.OneOfMultipleValid(context=branches):
            # The branches without violations are those that match.
            return f"{sum(not branch for branch in branches)} subschemas matched instead of one"
        case _:
            return _shown(error.message)


_TEXTS: Mapping[str, Callable[[Any, Any], str]] = {
    "enum": lambda _, value: f"{_shown(value)} is not a valid enum value",
    "const": lambda expected, value: f"{_shown(value)} is not the expected value {_shown(expected)}",
    "pattern": lambda pattern, value: MESSAGES.get(
        pattern, f"string [{_shown(value)}] does not match pattern {pattern}"
    ),
    "format": lambda name, _: f"must be a valid {name}",
    "minLength": lambda limit, value: f"expected minLength: {limit}, actual: {len(value)}",
    "maxLength": lambda limit, value: f"expected maxLength: {limit}, actual: {len(value)}",
    "minimum": lambda limit, value: f"{_shown(value)} is not greater or equal to {_shown(limit)}",
    "maximum": lambda limit, value: f"{_shown(value)} is not less or equal to {_shown(limit)}",
    "exclusiveMinimum": lambda limit, value: f"{_shown(value)} is not greater than {_shown(limit)}",
    "exclusiveMaximum": lambda limit, value: f"{_shown(value)} is not less than {_shown(limit)}",
    "multipleOf": lambda factor, value: f"{_shown(value)} is not a multiple of {_shown(factor)}",
    "minItems": lambda limit, value: f"expected minimum item count: {limit}, found: {len(value)}",
    "maxItems": lambda limit, value: f"expected maximum item count: {limit}, found: {len(value)}",
    "uniqueItems": lambda _, __: "array items are not unique",
    "additionalItems": lambda limit, value: f"expected: [{limit}] array items, found: [{len(value)}]",
    "minProperties": lambda limit, value: f"minimum size: [{limit}], found: [{len(value)}]",
    "maxProperties": lambda limit, value: f"maximum size: [{limit}], found: [{len(value)}]",
    "not": lambda schema, _: f"subject must not be valid against schema {_shown(schema)}",
    "contains": lambda _, __: "expected at least one array item to match 'contains' schema",
    "falseSchema": lambda _, __: "false schema always fails",
}
"""The texts of violations by keyword, made of its value and the offending value."""

_EXPECTED = {
    "string": "String",
    "integer": "Integer",
    "number": "Number",
    "boolean": "Boolean",
    "object": "JSONObject",
    "array": "JSONArray",
    "null": "Null",
}
_FOUND = {
    str: "String",
    float: "Double",
    bool: "Boolean",
    dict: "JSONObject",
    list: "JSONArray",
    type(None): "Null",
}
_INT32 = range(-(2**31), 2**31)


def _found(value: Any) -> str:
    if type(value) is int:
        return "Integer" if value in _INT32 else "Long"
    return _FOUND[type(value)]


def _shown(value: Any) -> str:
    """A value as text: strings as they are, the rest as JSON."""
    return cut(value if isinstance(value, str) else msgspec.json.encode(value).decode(), TEXT_CHARACTERS_MAX)
