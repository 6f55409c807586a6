"""A client that asks for keys of several dimensions on streams, with event times, until it ends.

`python busy_streams.py ENDPOINT DIMENSION…`; run by tests that look at a sidecar under load.
"""

import random
import sys
import time

import pyarrow as pa

from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from spark_client.transport.channel_session import ChannelSession
from spark_client.transport.connections import Address, connections

KEY = pa.schema({"id": pa.int64()})
KEYS = 200  # in a question
MOST_KEY = 5_000  # the tables have fewer rows, so that some are missing
TIMEOUT_S = 1.0
PAUSE_S = 0.02


def main() -> None:
    """Ask all dimensions in turn, whatever the answers are."""
    endpoint, *dimensions = sys.argv[1:]
    open_one = connections.to(Address(endpoint)).open
    sessions = [open_one(ChannelRequest(name, None, "load", KEY)) for name in dimensions]
    question = 0
    while True:
        question += 1
        for session in sessions:
            _ask(session, QuestionId(question))
        time.sleep(PAUSE_S)


def _ask(session: ChannelSession, question: QuestionId) -> None:
    ids = random.sample(range(1, MOST_KEY), KEYS)
    keys = pa.record_batch([pa.array(ids, pa.int64())], schema=KEY)
    session.look_up(SentKeys(question, keys, time.monotonic() + TIMEOUT_S))
    session.mark(int(time.time() * 1000))
    left = KEYS
    while left:
        left -= sum(answered.answer.size for answered in session.answers(None))


if __name__ == "__main__":
    main()
