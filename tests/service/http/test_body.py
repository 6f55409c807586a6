"""Bodies are read within their bounds, and refused ones do not hold the connection."""

import gzip

import pytest

from service.http.limits import Limits
from tests.service.http.raw_http import connected, exchanged
from tests.service.http.serving import Served, Setting, served

HEAD = (
    b"POST /v1/dimensions/customers/lookup HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\n"
)
BODY = b'{"keys": [1]}'
QUICK = Setting(limits=Limits(body_deadline_s=0.1, linger_s=0.1))
SMALL = Setting(limits=Limits(request_bytes=1000, linger_s=0.1))


async def test_declared_size_is_refused_early() -> None:
    """A body that is announced too large is refused before it comes."""
    async with served(SMALL) as service:
        answer = await exchanged(service, HEAD + b"Content-Length: 1001\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"body_too_large"' in answer
    assert b"Connection: close" in answer


async def test_chunked_size_is_refused() -> None:
    """A body whose size is not announced is read up to the limit and no further."""
    chunk = b"100\r\n" + b" " * 256 + b"\r\n"
    async with served(SMALL) as service:
        answer = await exchanged(
            service, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 8 + b"0\r\n\r\n"
        )

    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_dripping_body_is_ended() -> None:
    """A body that is not whole by the deadline is given up, and its connection closed."""
    async with served(QUICK) as service:
        answer = await exchanged(service, HEAD + b"Content-Length: 13\r\n\r\n" + b"{")

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"request_timeout"' in answer


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
async def test_compressed_bodies_are_refused(service: Served, encoding: str) -> None:
    """A few bytes that would become gigabytes are not unpacked."""
    bomb = gzip.compress(b" " * 10_000_000)
    headers = {"Content-Encoding": encoding, "Content-Type": "application/json"}
    path = "/v1/dimensions/customers/lookup"

    async with service.unix.post(path, data=bomb, headers=headers, compress=False) as response:
        problem = await response.json()

    assert (response.status, problem["code"]) == (415, "unsupported_media_type")


async def test_broken_chunks_are_refused(service: Served) -> None:
    """A body that is not framed as announced is a bad request."""
    answer = await exchanged(service, HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")

    assert answer.split()[1] == b"400"


async def test_chunks_that_break_later_are_given_up() -> None:
    """A body whose framing breaks while it is read is never whole, and is ended as such."""
    head = HEAD + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with served(QUICK) as service, connected(service) as (reader, writer):
        writer.write(head)
        await reader.readuntil(b"\r\n\r\n")  # the invitation: it is being read now
        writer.write(b"zz\r\n")
        answer = await reader.readuntil(b"\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_sender_is_invited_when_it_may_send(service: Served) -> None:
    """A client that waits for `100 Continue` gets it, and then its answer."""
    async with connected(service) as (reader, writer):
        writer.write(HEAD + b"Expect: 100-continue\r\nContent-Length: 13\r\n\r\n")
        invitation = await reader.readuntil(b"\r\n\r\n")
        writer.write(BODY)
        answer = await reader.readuntil(b"\r\n\r\n")

    assert invitation == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_refused_sender_is_not_invited() -> None:
    """Who may not send is told so instead of being invited."""
    async with served(SMALL) as service:
        answer = await exchanged(
            service, HEAD + b"Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n"
        )

    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_other_expectations_fail() -> None:
    """What we do not know cannot be expected of us."""
    async with served(SMALL) as service:
        answer = await exchanged(service, HEAD + b"Expect: tea\r\nContent-Length: 13\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 417 ")
    assert b'"expectation_failed"' in answer
