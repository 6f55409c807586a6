"""A load of the status page: `python -m tests.end_to_end.page_load ENDPOINT CHANNELS`.

Looks up known and new keys of `customers` on two channels, and keys of `places` on the others.
"""

import sys
import time
from itertools import count

import pyarrow as pa

from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import RunId, SentKeys
from spark_client.transport.connection import ChannelSession
from spark_client.transport.connections import SidecarAddress, connections

KNOWN = 50  # keys of each round that are cached from the second round on
NEW = 10
FIRST_NEW = 700_000_000  # a number that occurs nowhere else
MAX_CHANNELS = 60  # of one connection
LAG_S = 5.0
PAUSE_S = 0.05
TIMEOUT_S = 1.0
STRANGE_ORIGIN = "<img src=x onerror=alert(1)> & \"friends\" 'of' {nonce}"


def main() -> None:
    """Look up until the process is ended."""
    url, others = sys.argv[1], int(sys.argv[2])
    customers = [
        _opened(SidecarAddress(url), "customers", name) for name in ("task 0", STRANGE_ORIGIN)
    ]
    places = [
        # Another timeout makes another connection, as each has a bounded number of channels.
        _opened(
            SidecarAddress(url, connect_timeout_s=30.0 + part // MAX_CHANNELS),
            *("places", f"partition {part}"),
        )
        for part in range(others)
    ]
    for number in count():
        first = FIRST_NEW + NEW * number
        # Both channels request the same new keys at once, so that some are coalesced.
        for channel in customers:
            channel.look_up(_sent(number, [*range(KNOWN), *range(first, first + NEW)]))
        for channel in customers:
            left = KNOWN + NEW
            while left:
                left -= sum(answered.answer.size for answered in channel.answers(None))
            channel.mark(_event_time_ms())
        for channel in places[number % 50 :: 50]:
            channel.look_up(_sent(number, [number % 5]))
            channel.mark(_event_time_ms())
            channel.answers(0.0)
        time.sleep(PAUSE_S)


def _opened(address: SidecarAddress, dimension: str, origin: str) -> ChannelSession:
    key = pa.schema({"id": pa.int64()})
    return connections.to(address).open(ChannelRequest(dimension, None, origin, key))


def _sent(number: int, keys: list[int]) -> SentKeys:
    batch = pa.record_batch([pa.array(keys, pa.int64())], names=["id"])
    return SentKeys(RunId(number), batch, time.monotonic() + TIMEOUT_S)


def _event_time_ms() -> int:
    return int((time.time() - LAG_S) * 1000)


if __name__ == "__main__":
    main()
