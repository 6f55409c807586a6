"""A client process that sends one LOOKUP and then only responds to pings; tests stop or kill it.

It prints `ready` after its imports, and reads the address from standard input.
"""

import signal
import sys
import time

import pyarrow as pa

from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import RunId, SentKeys
from spark_client.transport.connections import SidecarAddress, connections

KEYS = 100


def main() -> None:
    """Send the LOOKUP and wait for the end."""
    key = pa.schema({"id": pa.int64()})
    request = ChannelRequest("customers", None, "a client that freezes", key)
    print("ready", flush=True)  # noqa: T201 -- to the test
    session = connections.to(SidecarAddress(sys.stdin.readline().strip())).open(request)
    keys = pa.record_batch([pa.array(range(KEYS), pa.int64())], schema=key)
    session.look_up(SentKeys(RunId(1), keys, time.monotonic() + 60.0))
    signal.pause()


if __name__ == "__main__":
    main()
