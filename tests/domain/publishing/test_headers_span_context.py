import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.publishing.headers import CONTEXT_BYTES_MAX, span_context


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("span_ctx", "trace_parent", "trace_state", "context"),
    [
        (None, None, None, {}),
        (
            '{"spanid":"b9","sampled":"true"}',
            None,
            None,
            {"spanid": "b9", "sampled": "true"},
        ),
        ("{}", None, None, {}),
        ('{"a":1}', None, None, {}),
        ('["a"]', None, None, {}),
        ("{", None, None, {}),
        ("", "", "", {}),
        (None, PARENT, None, {"traceparent": PARENT}),
        (None, PARENT, "vendor=1,other=2", {"traceparent": PARENT, "tracestate": "vendor=1,other=2"}),
        (None, PARENT, "caf\xe9", {"traceparent": PARENT}),
        (None, None, "vendor=1", {}),
        (None, PARENT.upper(), None, {}),
        (None, PARENT + "-more", None, {}),
        (None, "cc" + PARENT[2:] + "-more", None, {"traceparent": "cc" + PARENT[2:] + "-more"}),
        (None, "ff" + PARENT[2:], None, {}),
        (None, f"00-{'0' * 32}-b7ad6b7169203331-01", None, {}),
        (None, f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01", None, {}),
        ('{"a":"b"}', PARENT, None, {"traceparent": PARENT, "a": "b"}),
        ('{"traceparent":"mine"}', PARENT, None, {"traceparent": "mine"}),
        ('{"a":"%s"}' % ("x" * CONTEXT_BYTES_MAX), PARENT, None, {}),
    ],
)
def test_valid_context_is_kept_and_invalid_context_ignored(span_ctx, trace_parent, trace_state, context):
    """Reference common#span-context."""
    assert span_context(span_ctx, trace_parent, trace_state) == context


@given(*[st.none() | st.text(st.characters(max_codepoint=255))] * 3)
def test_no_header_is_an_error(span_ctx, trace_parent, trace_state):
    assert all(isinstance(value, str) for value in span_context(span_ctx, trace_parent, trace_state).values())
