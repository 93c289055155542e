"""Data of a client in the log can be read again, whatever the client calls itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.events import USER_AGENT_CHARACTERS_MAX, client_parts, client_text, printable, realm_of


@given(st.ip_addresses().map(str), st.text(), st.text(st.characters(exclude_characters="\n")))
def test_address_program_and_realm_are_kept_apart(address, user_agent, realm):
    text = client_text(address, user_agent, realm)
    assert client_parts(text) == (address, printable(user_agent, USER_AGENT_CHARACTERS_MAX).strip())
    assert realm_of(text) == realm


@pytest.mark.parametrize(
    ("text", "parts"),
    [("192.0.2.7", ("192.0.2.7", "")), ("192.0.2.7 curl/8 x", ("192.0.2.7", "curl/8 x")), ("", ("", ""))],
)
def test_entries_without_a_realm_are_read_as_before(text, parts):
    assert (client_parts(text), realm_of(text)) == (parts, "")
