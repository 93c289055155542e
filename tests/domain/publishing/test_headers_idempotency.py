import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.errors import Malformed
from rioni.domain.publishing.headers import check_key, claim_of, scope_of
from tests.support.builders import LATER, event_type


@pytest.mark.parametrize("key", ["x", "x" * 255, '"8e03978e-40d5-43dd-bc93-6894a57f9324"', "a b"])
def test_a_key_is_a_short_printable_string(key):
    """Reference publishing#idempotency-keys."""
    assert check_key(key) == key


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "\x7f", "\xe4"])
def test_anything_else_is_an_invalid_key(key):
    """Reference publishing#idempotency-keys."""
    with pytest.raises(Malformed, match="Idempotency-Key must be 1 to 255 printable ASCII characters"):
        check_key(key)


def test_an_event_type_that_is_created_again_has_another_scope():
    first = event_type()
    again = msgspec.structs.replace(first, created_at=LATER)
    assert len({scope_of(each) for each in (first, again, event_type(name="other"))}) == 3
    assert scope_of(first) == scope_of(msgspec.structs.replace(first, updated_at=LATER))


TEXT = st.text(max_size=3)
PARTS = st.fixed_dictionaries({"client": TEXT, "key": TEXT, "kind": TEXT, "body": st.binary(max_size=3)})


@given(st.lists(PARTS, min_size=2, max_size=6))
def test_only_the_same_request_makes_the_same_claim(requests):
    for one, other in itertools.combinations(requests, 2):
        first, second = claim_of("s", **one), claim_of("s", **other)
        assert (first.id == second.id) == ((one["client"], one["key"]) == (other["client"], other["key"]))
        assert (first.digest == second.digest) == ((one["kind"], one["body"]) == (other["kind"], other["body"]))
