"""Templates of lines."""

import pytest
import typer

from rioni.cli.events.event_printing import template


EVENT = {"metadata": {"eid": "e1"}, "price": 1.5, "tags": ["a", "b"], "paid": True, "note": "x\x1b"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{metadata.eid} {price}", "e1 1.5"),
        (r"{price:>6.2f}\t{tags.1}", "  1.50\tb"),
        ("{{}} {metadata} {tags} {paid}", '{} {"eid": "e1"} ["a", "b"] true'),
        ("{absent}|{metadata.absent}|{tags.7}|{price.x}", "|||"),
        ("{note}", "x\\x1b"),
        ("{metadata.__class__}", ""),
    ],
)
def test_braces_hold_paths_of_values(text, line):
    assert template(text)(EVENT) == line


@pytest.mark.parametrize("text", ["{", "}", "{price:>6.2q}"])
def test_what_is_no_template_is_an_error_of_the_option(text):
    with pytest.raises(typer.BadParameter):
        template(text)(EVENT)
