"""A load of lookups with event times; its arguments are an endpoint and dimensions."""

import random
import sys
import time

import pyarrow as pa

from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import RunId, SentKeys
from spark_client.transport.connection import ChannelSession
from spark_client.transport.connections import SidecarAddress, connections

KEY = pa.schema({"id": pa.int64()})
KEYS = 200  # of a lookup
MOST_KEY = 5_000  # beyond the rows of the tables, so that some are missing
TIMEOUT_S = 1.0
PAUSE_S = 0.02


def main() -> None:
    """Look up in all dimensions in turn until the process is ended."""
    endpoint, *dimensions = sys.argv[1:]
    open_one = connections.to(SidecarAddress(endpoint)).open
    sessions = [open_one(ChannelRequest(name, None, "load", KEY)) for name in dimensions]
    run = 0
    while True:
        run += 1
        for session in sessions:
            _ask(session, RunId(run))
        time.sleep(PAUSE_S)


def _ask(session: ChannelSession, run: RunId) -> None:
    ids = random.sample(range(1, MOST_KEY), KEYS)
    keys = pa.record_batch([pa.array(ids, pa.int64())], schema=KEY)
    session.look_up(SentKeys(run, keys, time.monotonic() + TIMEOUT_S))
    session.mark(int(time.time() * 1000))
    left = KEYS
    while left:
        left -= sum(answered.answer.size for answered in session.answers(None))


if __name__ == "__main__":
    main()
