"""Which texts name a span, by the W3C's grammar."""

import pytest

from lookup_core.protocol.trace_parent import TraceParent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize("flags", ["00", "01", "ff"])
def test_two_ids_and_flags_are_well_formed(flags: str) -> None:
    """Whatever the flags say, a span can be told."""
    assert TraceParent(f"00-{TRACE}-{SPAN}-{flags}").is_well_formed


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"ff-{TRACE}-{SPAN}-01",
    ],
)
def test_other_texts_name_no_span(text: str) -> None:
    """Zeros, capitals and whatever is too short or too long name nobody."""
    assert not TraceParent(text).is_well_formed
