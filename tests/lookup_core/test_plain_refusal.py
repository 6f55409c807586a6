"""What is said where plain HTTP found no sidecar."""

import pytest

from lookup_core.protocol.tls_hints import plain_refusal


def test_plain_address_may_have_tls() -> None:
    """The same address with https:// is what to try."""
    assert plain_refusal("http://h:8815") == (
        "if it listens with TLS, its address is https://h:8815"
    )


@pytest.mark.parametrize("url", ["https://h:8815", "unix:///run/s.sock"])
def test_other_addresses_have_no_other_form(url: str) -> None:
    """A socket has no TLS, and who asked with it knows."""
    assert plain_refusal(url) is None
