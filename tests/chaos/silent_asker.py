"""A client that sends a lookup and blocks: `python -m tests.chaos.silent_asker URL`."""

import sys
import threading
import time

import pyarrow as pa

from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from spark_client.transport.connections import Address, connections

KEYS = pa.record_batch([pa.array(range(10**6, 10**6 + 30), pa.int64())], ["key"])


def main(url: str) -> None:
    """Send a lookup, print `asked`, and block."""
    request = ChannelRequest("slow", ("value",), "a task that dies", KEYS.schema)
    channel = connections.to(Address(url)).open(request)
    channel.look_up(SentKeys(QuestionId(1), KEYS, time.monotonic() + 3_600.0))
    print("asked", flush=True)  # noqa: T201 -- the test waits for it
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1])
