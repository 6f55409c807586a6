"""Frames that a client may send in each state of its channel, as in docs/wire_protocol.md."""

from collections import deque
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lookup_core.errors import ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import decode_batch
from lookup_core.protocol.client_channel import ChannelRequest, ClientChannel
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from tests.lookup_core.protocol.channel_frames import missing, result

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
    """Keys that each have the number of their question."""
    keys = pa.record_batch([pa.array([question] * count, pa.int64())], KEY)
    return SentKeys(QuestionId(question), keys, 9.0)


class ChannelMachine(RuleBasedStateMachine):
    """One channel over several connections; the service may keep floating credit."""

    def __init__(self) -> None:
        super().__init__()
        self.channel = ClientChannel(1, REQUEST)
        self.state = "free"
        self.lookups: dict[int, list[int]] = {}  # {sequence: keys}, at the service
        self.arrived: deque[tuple[frames.Result, list[int]]] = deque()  # not decoded yet
        self.unanswered: dict[int, int] = {}  # {question: keys}

    def sent(self, sending: Sequence[Frame]) -> None:
        """Check the frames, and let the service receive them."""
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
        """The channel is open."""
        self.request()
        self.open()

    @rule()
    def lose(self) -> None:
        """The connection is lost, or ERROR ends the channel; received answers remain."""
        self.channel.on_lost()
        self.state = "free"
        self.lookups.clear()

    @precondition(lambda self: self.state == "free")
    @rule()
    def request(self) -> None:
        """OPEN is sent on a new connection, after the answers of the last one are taken."""
        while self.arrived:
            self.take()
        assert self.channel.open().channel == 1
        self.state = "opening"

    @precondition(lambda self: self.state == "opening")
    @rule()
    def open(self) -> None:
        """OPENED arrives."""
        self.state = "open"
        self.sent(self.channel.on_opened(OPENED, now_s=0.0))

    @precondition(lambda self: self.state == "opening")
    @rule()
    def open_too_late(self) -> None:
        """OPENED arrives after GOAWAY."""
        self.leave()
        self.sent(self.channel.on_opened(OPENED, now_s=0.0))

    @rule()
    def leave(self) -> None:
        """GOAWAY arrives, if there is a connection."""
        self.channel.pause()
        self.state = "free" if self.state == "free" else "leaving"

    @rule(count=st.integers(1, 20))
    def ask(self, count: int) -> None:
        """Keys of a new question are looked up."""
        question = len(self.unanswered)
        self.unanswered[question] = count
        self.sent(self.channel.ask(asked(question, count), now_s=0.0))

    @rule()
    def mark(self) -> None:
        """A watermark is sent."""
        self.sent(self.channel.mark(5, now_s=0.0))

    @rule()
    def fall_silent(self) -> None:
        """The input pauses."""
        self.sent(self.channel.on_silence(now_s=0.0))

    @precondition(lambda self: self.unanswered)
    @rule(choice=st.data())
    def abandon(self, choice: st.DataObject) -> None:
        """A question is abandoned."""
        question = choice.draw(st.sampled_from(sorted(self.unanswered)))
        self.unanswered[question] = 0
        self.sent(self.channel.abandon(QuestionId(question), now_s=0.0))

    @rule(records=st.integers(0, 10))
    def give(self, records: int) -> None:
        """CREDIT arrives, possibly late."""
        self.sent(self.channel.on_credit(frames.Credit(1, records, 0), now_s=0.0))

    @precondition(lambda self: self.lookups)
    @rule()
    def answer(self) -> None:
        """The service answers its oldest LOOKUP."""
        sequence = min(self.lookups)
        keys = self.lookups.pop(sequence)
        self.arrived.append((result(sequence, missing(*range(len(keys)))), keys))

    @precondition(lambda self: self.arrived)
    @rule()
    def take(self) -> None:
        """The task takes an answer at any time; it belongs to the question of its keys."""
        received, keys = self.arrived.popleft()
        answered = self.channel.on_result(received)
        if answered is not None:
            assert {answered.question} == set(keys)
            self.unanswered[answered.question] -= len(keys)
        self.sent(self.channel.resume(now_s=0.0))

    @invariant()
    def is_consistent(self) -> None:
        """The channel is consistent."""
        self.channel.check_invariants()

    def teardown(self) -> None:
        """On a lasting connection, each key is answered once."""
        self.lose()
        self.request()
        self.open()
        while self.lookups:
            self.answer()
            self.take()
            self.give(10)
        assert set(self.unanswered.values()) <= {0}
        assert self.channel.is_quiet


TestChannelStates = ChannelMachine.TestCase
TestChannelStates.settings = settings(max_examples=100, stateful_step_count=30)


def test_lost_channel_expects_no_answer() -> None:
    """A lost channel is quiet, and sends no CANCEL for its abandoned lookups."""
    channel = ClientChannel(1, REQUEST)
    channel.open()
    channel.on_opened(OPENED, now_s=0.0)
    channel.ask(asked(0, 3), now_s=0.0)

    channel.on_lost()

    assert channel.is_quiet
    assert channel.abandon(QuestionId(0), now_s=0.0) == []


def test_opened_without_open_is_refused() -> None:
    """OPENED without OPEN is a violation, and no lookup is sent."""
    channel = ClientChannel(1, REQUEST)
    channel.ask(asked(0, 3), now_s=0.0)

    with pytest.raises(ProtocolViolation, match="OPENED without OPEN"):
        channel.on_opened(OPENED, now_s=0.0)

    assert channel.resume(now_s=0.0) == []
    assert channel.columns is None
