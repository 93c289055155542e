"""Namesakes of two realms are different principals, wherever something is kept, counted or locked for a subject."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rioni
from rioni.domain.access.authorization import Subject, is_realm, is_uid, name_and_realm


PACKAGE = Path(rioni.__file__).parent
SHOWN = {
    "commands/authorization.py": "what the answer of /rights says, and the names of the blacklist",
    "commands/publisher.py": "metadata.published_by; a key of idempotency with the realm behind it",
    "commands/system/job_records.py": "what lists of jobs show, with the realm beside it",
    "http/middleware/access_log.py": "a line of the access log, with the realm beside it",
    "http/request_parsing.py": "the actor in the log",
    "http/resources/events.py": "KPI events, with the realm beside it",
    "http/resources/streams.py": "KPI events and lines of the log, with the realm beside it",
}
"""Files that read the name of a subject, which must only be shown, with the reason; what is kept goes by `key`."""
NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=5)


@given(NAMES, st.just("") | NAMES)
def test_a_key_stands_for_one_name_in_one_realm(name, realm):
    assert is_uid(name)
    assert is_realm(realm)
    assert name_and_realm(Subject(name=name, realm=realm).key) == (name, realm)


@pytest.mark.parametrize("realm", ["a\nb", "a\x00", "x" * 256, None, 1])
def test_what_is_no_realm_can_not_be_part_of_a_key(realm):
    assert not is_realm(realm)


def test_names_of_subjects_are_shown_and_never_used_as_keys():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr == "name" and _is_subject(node.value):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == SHOWN.keys()


def _is_subject(node):
    """Whether an expression is called a subject, or asks for one."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Call(func=ast.Name(id=name)):
            return "subject" in name
        case _:
            return False
