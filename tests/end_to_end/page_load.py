"""Keeps a sidecar busy for the page: `python -m tests.end_to_end.page_load ENDPOINT CHANNELS`.

Asks `customers` for known keys and for new ones, from two channels, and `places` from so many.
Run by tests that end it; nothing of pytest is here.
"""

import sys
import time
from itertools import count

import pyarrow as pa

from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from spark_client.transport.connections import Address, connections
from spark_client.transport.interface import LookupChannel

KNOWN = 50  # of the keys of each round, cached from the second round on
NEW = 10
FIRST_NEW = 700_000_000  # a number that stands nowhere else
MOST = 60  # channels of one connection
LAG_S = 5.0
PAUSE_S = 0.05
TIMEOUT_S = 1.0
STRANGE_ORIGIN = "<img src=x onerror=alert(1)> & \"friends\" 'of' {nonce}"


def main() -> None:
    """Ask until ended."""
    url, others = sys.argv[1], int(sys.argv[2])
    address = Address(url)
    customers = [_opened(address, "customers", f"task {part}") for part in range(1)]
    customers.append(_opened(address, "customers", STRANGE_ORIGIN))
    places = [
        # Another patience is another connection: each has a bounded number of channels.
        _opened(Address(url, connect_timeout_s=30.0 + part // MOST), "places", f"partition {part}")
        for part in range(others)
    ]
    for number in count():
        # Both ask for the same new keys at once, so that some are coalesced whenever it is looked.
        for channel in customers:
            channel.look_up(_asked(number, _keys(number)))
        for channel in customers:
            _take(channel)
        for channel in places[number % 50 :: 50]:
            channel.look_up(_asked(number, [number % 5]))
            channel.mark(_now_ms())
            channel.answers(0.0)
        time.sleep(PAUSE_S)


def _opened(address: Address, dimension: str, origin: str) -> LookupChannel:
    key = pa.schema({"id": pa.int64()})
    return connections.to(address).open(ChannelRequest(dimension, None, origin, key))


def _keys(number: int) -> list[int]:
    new = FIRST_NEW + NEW * number
    return [*range(KNOWN), *range(new, new + NEW)]


def _take(channel: LookupChannel) -> None:
    left = KNOWN + NEW
    while left:
        left -= sum(answered.answer.size for answered in channel.answers(None))
    channel.mark(_now_ms())


def _asked(number: int, keys: list[int]) -> SentKeys:
    batch = pa.record_batch([pa.array(keys, pa.int64())], names=["id"])
    return SentKeys(QuestionId(number), batch, time.monotonic() + TIMEOUT_S)


def _now_ms() -> int:
    return int((time.time() - LAG_S) * 1000)


if __name__ == "__main__":
    main()
