"""What to try where an end that was asked without TLS has not answered as a sidecar does.

Connects to nothing; where TLS was spoken, `tls_refusal` has the words.
"""

_PLAIN, _SECURE = "http://", "https://"


def plain_refusal(url: str) -> str | None:
    """The remedy for an address of plain HTTP; None for any other, such as a socket's."""
    if not url.startswith(_PLAIN):
        return None
    return f"if it listens with TLS, its address is {_SECURE}{url.removeprefix(_PLAIN)}"
