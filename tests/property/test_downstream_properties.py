"""Whatever a trace is: calls come out, or one error that says where; and what comes out adds up."""

import io

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.recorded.downstream import as_json, listing, template
from harness.recorded.errors import RecordedError
from harness.recorded.lines import Source
from harness.recorded.spans import read_calls
from harness.recorded.times import Clock, zone_of

KEYS = st.sampled_from(
    [
        "resourceSpans",
        "scopeSpans",
        "spans",
        "kind",
        "attributes",
        "key",
        "value",
        "stringValue",
        "intValue",
        "data",
        "tags",
        "traceID",
        "startTime",
        "duration",
        "startTimeUnixNano",
        "endTimeUnixNano",
        "status",
        "code",
        "references",
        "dependency",
        "operation",
        "t_ns",
        "arrival",
        "path",
        "log",
        "entries",
        "request",
        "response",
        "url",
        "method",
        "headers",
        "startedDateTime",
        "timings",
        "wait",
    ]
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8), st.sampled_from(["client", "http.url", "http://h/1", "2024-05-01T10:00:00Z", "GET", "3"]),
)  # fmt: skip
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=30
)
SPAN = st.dictionaries(KEYS, JSON, max_size=8).map(lambda span: {"kind": 3, "startTime": 1, **span})
DOCUMENTS = st.one_of(
    JSON,
    st.lists(SPAN, max_size=3).map(lambda spans: {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}),
    st.lists(SPAN, max_size=3).map(lambda spans: {"data": [{"spans": spans}]}),
    SPAN.map(lambda row: {"dependency": "x", "t_ns": 1, "operation": "read", **row}),
    SPAN.map(lambda row: {"arrival": "x", "t_ns": 1, **row}),
    st.lists(SPAN, max_size=3).map(lambda made: {"log": {"entries": made}}),
)


@settings(max_examples=300, deadline=None)
@given(DOCUMENTS)
def test_any_document_is_calls_or_one_error(document):
    text = orjson.dumps(document)
    try:
        seen, _ = read_calls(Source("x", io.BytesIO(text), len(text)), "auto", Clock(zone_of("UTC")))
    except RecordedError as error:
        told = str(error)
        assert told.isprintable()
        return
    found = listing(seen)
    assert sum(row.calls for row in found.rows.values()) == found.calls == len(seen) == sum(found.workflows.values())
    if seen:
        orjson.dumps(as_json(found))


@given(st.text(max_size=300))
def test_a_template_is_stable_and_bounded(path):
    once = template(path)
    assert len(once.split("/")) <= 14
    assert "?" not in once
