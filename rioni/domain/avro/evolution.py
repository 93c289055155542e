"""Decides whether a compatibility mode allows a change of an Avro schema, and computes the next version.

Source: reference schemas#avro-evolution.

As for JSON, the current mode of the event type decides: it is not possible to relax the mode and break the schema in
one step (15.2 #5). A change towards mode compatible has to satisfy that mode, too.
"""

from collections.abc import Sequence

from rioni.domain.avro.parsing import parse_event_schema
from rioni.domain.avro.resolution import Incompatibility, incompatibilities
from rioni.domain.errors import Invalid
from rioni.domain.schemas.change import Level
from rioni.domain.schemas.evolution import next_schema_version


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
        Invalid: the submitted schema is not valid, or the mode refuses the change; names what can't be read.
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
        raise Invalid(f"Failed to evolve avro schema due to [{_listed(refused)}]")
    return next_schema_version(version, Level.MAJOR)


def _listed(refused: Sequence[Incompatibility]) -> str:
    texts = list(map(str, refused[:NAMED_MAX]))
    if len(refused) > NAMED_MAX:
        texts.append(f"and {len(refused) - NAMED_MAX} more")
    return ", ".join(texts)
