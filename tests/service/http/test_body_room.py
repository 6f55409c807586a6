"""What all bodies that are being read may hold, and who is refused when it is too much."""

import asyncio
from dataclasses import replace

import pytest

from lookup_core.errors import ErrorCode, Overloaded
from service.http.application import ServiceParts
from service.http.limits import BodyByteBudget
from tests.service.http.raw_http import connected
from tests.service.http.serving import Served, Setting, served

HEAD = (
    b"POST /v1/dimensions/customers/lookup HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
)


def test_one_alone_has_what_it_wants() -> None:
    """The bound of single bodies stands elsewhere: alone, one may be larger than the room."""
    room = BodyByteBudget(100)

    room.take(80, held_bytes=0)
    room.take(80, held_bytes=80)
    room.give_back(160)


def test_several_share_the_room() -> None:
    """Together they stay within it: who comes too late is told to come again."""
    room = BodyByteBudget(100)
    room.take(80, held_bytes=0)
    room.take(20, held_bytes=0)

    with pytest.raises(Overloaded) as caught:
        room.take(1, held_bytes=20)

    assert (caught.value.code, caught.value.retry_after_s) == (ErrorCode.OVERLOADED, 1.0)


def test_bodies_that_were_read_make_room() -> None:
    """What a body held is there for the next one."""
    room = BodyByteBudget(100)
    room.take(80, held_bytes=0)
    room.take(20, held_bytes=0)

    room.give_back(80)
    room.take(80, held_bytes=20)


async def test_stalled_body_holds_its_room() -> None:
    """While a body drips, one for which there is no room besides is refused with 503."""
    async with served(_with_room(500)) as service, connected(service) as (_, writer):
        writer.write(HEAD + b" " * 400)
        await _until_refused(service)
        writer.transport.abort()
        await _until_served(service)


def _with_room(total_bytes: int) -> Setting:
    def change(parts: ServiceParts) -> ServiceParts:
        return replace(parts, body_budget=BodyByteBudget(total_bytes))

    return Setting(change_parts=change)


async def _until_refused(service: Served) -> None:
    while await _status(service) != 503:  # noqa: ASYNC110  the service has to read it first
        await asyncio.sleep(0)


async def _until_served(service: Served) -> None:
    while await _status(service) != 200:  # noqa: ASYNC110  as above
        await asyncio.sleep(0)


async def _status(service: Served) -> int:
    return (await service.lookup('{"keys": [1]}' + " " * 150)).status
