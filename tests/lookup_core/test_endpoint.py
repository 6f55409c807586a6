"""Endpoint URLs: the accepted forms, and the error for all others."""

import pytest

from lookup_core.endpoint import EndpointUrl


@pytest.mark.parametrize(
    ("url", "path", "host", "port", "is_secure"),
    [
        ("unix:///run/a.sock", "/run/a.sock", "localhost", 0, False),
        ("unix://run/a?b#c", "run/a?b#c", "localhost", 0, False),
        ("http://127.0.0.1:8815", None, "127.0.0.1", 8815, False),
        ("http://A", None, "a", 80, False),
        ("https://[::1]/", None, "::1", 443, True),
    ],
)
def test_url_names_an_endpoint(
    url: str,
    path: str | None,
    host: str,
    port: int,
    is_secure: bool,  # noqa: FBT001 -- a parameter
) -> None:
    """A URL has the path of a socket, or a host and a port with the default of its scheme."""
    assert EndpointUrl.parse(url) == EndpointUrl(url, path, host, port, is_secure)


@pytest.mark.parametrize(
    "url",
    [
        *("", "unix://", "unix:a", "/run/a.sock", "localhost:8815", "ftp://a:1", "http://"),
        *("http://a:x", "http://a:65536", "http://[::1", "http://:80", "http://u:p@a"),
        *("http://a/b", "http://a//", "http://a?b", "http://a#b"),
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    """The error names the URL and the accepted forms."""
    with pytest.raises(ValueError, match="neither unix:///path nor http://host:port") as caught:
        EndpointUrl.parse(url)

    assert str(caught.value).startswith(repr(url))
