"""What a client may send in each state of its channel, whatever is lost, left or answered late.

The table is that of docs/wire_protocol.md: before OPENED nothing follows OPEN on the channel.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lookup_core.answer import Outcome, rowless_answer
from lookup_core.errors import ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import answer_batch, decode_batch, encode_batch
from lookup_core.protocol.client_channel import ChannelRequest, ClientChannel
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys

KEY = pa.schema({"question": pa.int64()})
REQUEST = ChannelRequest("customers", (), "a test", KEY)
OPENED = frames.Opened(1, 10, 100_000, pa.schema([]), ("question",))
MAY_SEND: dict[str, tuple[type[Frame], ...]] = {
    "free": (),
    "opening": (),
    "open": (frames.Lookup, frames.Watermark, frames.Status, frames.Cancel),
    "leaving": (frames.Cancel,),
}


def asked(question: int, count: int) -> SentKeys:
    """As many keys, each of which says whose it is."""
    keys = pa.record_batch([pa.array([question] * count, pa.int64())], KEY)
    return SentKeys(QuestionId(question), keys, 9.0)


def missing(sequence: int, count: int) -> frames.Result:
    """The last answer to a LOOKUP of as many keys: no rows."""
    answer = rowless_answer(np.arange(count, dtype=np.int32), Outcome.MISSING)
    payload = encode_batch(answer_batch(answer))
    return frames.Result(1, sequence, is_last=True, has_rows=False, payload=payload)


class ChannelMachine(RuleBasedStateMachine):
    """One channel over any number of connections; the service may keep floating credit."""

    def __init__(self) -> None:
        super().__init__()
        self.channel = ClientChannel(1, REQUEST)
        self.state = "free"
        self.lookups: dict[int, list[int]] = {}  # {sequence: keys}, at the service
        self.arrived: deque[tuple[frames.Result, list[int]]] = deque()  # not decoded yet
        self.unanswered: dict[int, int] = {}  # {question: keys}

    def sent(self, sending: Sequence[Frame]) -> None:
        """Check what goes out, and take it to the service."""
        for frame in sending:
            assert isinstance(frame, MAY_SEND[self.state])
            match frame:
                case frames.Lookup():
                    keys = decode_batch(frame.payload, KEY).column(0).to_pylist()
                    self.lookups[frame.sequence] = keys
                case frames.Cancel():
                    self.lookups.pop(frame.sequence, None)

    @initialize()
    def begin(self) -> None:
        """The channel stands."""
        self.request()
        self.stand()

    @rule()
    def lose(self) -> None:
        """The connection is lost, or ERROR ends the channel; what arrived is still there."""
        self.channel.on_lost()
        self.state = "free"
        self.lookups.clear()

    @precondition(lambda self: self.state == "free")
    @rule()
    def request(self) -> None:
        """OPEN on a connection that stands; what came on the one before is taken first."""
        while self.arrived:
            self.take()
        assert self.channel.open().channel == 1
        self.state = "opening"

    @precondition(lambda self: self.state == "opening")
    @rule()
    def stand(self) -> None:
        """OPENED comes."""
        self.state = "open"
        self.sent(self.channel.on_opened(OPENED, now_s=0.0))

    @precondition(lambda self: self.state == "opening")
    @rule()
    def stand_too_late(self) -> None:
        """OPENED comes behind GOAWAY."""
        self.leave()
        self.sent(self.channel.on_opened(OPENED, now_s=0.0))

    @rule()
    def leave(self) -> None:
        """GOAWAY comes, if there is a connection that it can come on."""
        self.channel.pause()
        self.state = "free" if self.state == "free" else "leaving"

    @rule(count=st.integers(1, 20))
    def ask(self, count: int) -> None:
        """Keys of a new question."""
        question = len(self.unanswered)
        self.unanswered[question] = count
        self.sent(self.channel.ask(asked(question, count), now_s=0.0))

    @rule()
    def mark(self) -> None:
        """A watermark."""
        self.sent(self.channel.mark(5, now_s=0.0))

    @rule()
    def fall_silent(self) -> None:
        """The input pauses."""
        self.sent(self.channel.on_silence(now_s=0.0))

    @precondition(lambda self: self.unanswered)
    @rule(choice=st.data())
    def abandon(self, choice: st.DataObject) -> None:
        """A question is given up."""
        question = choice.draw(st.sampled_from(sorted(self.unanswered)))
        self.unanswered[question] = 0
        self.sent(self.channel.abandon(QuestionId(question), now_s=0.0))

    @rule(records=st.integers(0, 10))
    def give(self, records: int) -> None:
        """CREDIT comes, possibly late."""
        self.sent(self.channel.on_credit(frames.Credit(1, records, 0), now_s=0.0))

    @precondition(lambda self: self.lookups)
    @rule()
    def answer(self) -> None:
        """The service answers its oldest LOOKUP."""
        sequence = min(self.lookups)
        keys = self.lookups.pop(sequence)
        self.arrived.append((missing(sequence, len(keys)), keys))

    @precondition(lambda self: self.arrived)
    @rule()
    def take(self) -> None:
        """The task takes an answer, whenever it likes: each belongs to the question of its keys."""
        result, keys = self.arrived.popleft()
        answered = self.channel.on_result(result)
        if answered is not None:
            assert {answered.question} == set(keys)
            self.unanswered[answered.question] -= len(keys)
        self.sent(self.channel.resume(now_s=0.0))

    @invariant()
    def is_consistent(self) -> None:
        """As the channel sees itself."""
        self.channel.check_invariants()

    def teardown(self) -> None:
        """On a connection that stays, each key is answered once."""
        self.lose()
        self.request()
        self.stand()
        while self.lookups:
            self.answer()
            self.take()
            self.give(10)
        assert set(self.unanswered.values()) <= {0}
        assert self.channel.is_quiet


TestChannelStates = ChannelMachine.TestCase
TestChannelStates.settings = settings(max_examples=100, stateful_step_count=30)


def test_lost_channel_expects_no_answer() -> None:
    """Nothing is cancelled at a service that does not know the channel, nor waited for there."""
    channel = ClientChannel(1, REQUEST)
    channel.open()
    channel.on_opened(OPENED, now_s=0.0)
    channel.ask(asked(0, 3), now_s=0.0)

    channel.on_lost()

    assert channel.is_quiet
    assert channel.abandon(QuestionId(0), now_s=0.0) == []


def test_opened_without_open_is_refused() -> None:
    """A service that opens what was not requested does not make lookups go out."""
    channel = ClientChannel(1, REQUEST)
    channel.ask(asked(0, 3), now_s=0.0)

    with pytest.raises(ProtocolViolation, match="OPENED without OPEN"):
        channel.on_opened(OPENED, now_s=0.0)

    assert channel.resume(now_s=0.0) == []
    assert channel.columns is None
