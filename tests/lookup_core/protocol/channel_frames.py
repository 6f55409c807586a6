"""Keys, frames and answers of one channel, for tests of the protocol.

The channel has number 1, one text key `id`, and one text column `name`.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import answer_batch, decode_batch, encode_batch
from lookup_core.protocol.client_channel import ChannelRequest, ClientChannel
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.sent_lookups import RunId, SentKeys

KEY = pa.schema({"id": pa.utf8()})
COLUMNS = pa.schema({"name": pa.utf8()})
REQUEST = ChannelRequest("customers", ("name",), "a test", KEY)


def sent_keys(run: int, *values: str, deadline_s: float = 9.0) -> SentKeys:
    """The keys of a run."""
    keys = pa.record_batch([pa.array(values, pa.utf8())], KEY)
    return SentKeys(RunId(run), keys, deadline_s)


def opened(records: int = 100, size: int = 100_000) -> frames.Opened:
    """An OPENED frame with this credit."""
    return frames.Opened(1, records, size, COLUMNS, ("id",))


def open_channel(records: int = 100, size: int = 100_000) -> ClientChannel:
    """A client channel that is open and has this credit."""
    channel = ClientChannel(1, REQUEST)
    channel.open()
    channel.receive(opened(records, size), now_s=0.0)
    return channel


def missing(*positions: int) -> Answer:
    """An answer that these positions have no row."""
    return rowless_answer(np.array(positions, np.int32), Outcome.MISSING)


def fetched(names: dict[int, str]) -> Answer:
    """An answer with rows, from {position: name}."""
    return Answer(
        np.array([*names], np.int32),
        np.full(len(names), Outcome.FETCHED, np.uint8),
        np.zeros(len(names), np.uint32),
        pa.record_batch([pa.array(names.values(), pa.utf8())], COLUMNS),
    )


def result(sequence: int, answer: Answer, *, is_last: bool = True) -> frames.Result:
    """A RESULT frame."""
    payload = encode_batch(answer_batch(answer))
    return frames.Result(1, sequence, is_last, answer.rows is not None, payload)


def key_values(frame: frames.Lookup) -> list[str]:
    """The keys of a LOOKUP frame."""
    values: list[str] = decode_batch(frame.payload, KEY).column(0).to_pylist()
    return values


def summary(sent: list[Frame]) -> list[Any]:
    """Frames in short form: a lookup as (sequence, keys), all others as they are."""
    return [
        (frame.sequence, key_values(frame)) if isinstance(frame, frames.Lookup) else frame
        for frame in sent
    ]
