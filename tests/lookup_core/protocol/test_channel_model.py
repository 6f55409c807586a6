"""Model of client channels against server channels, with frames in flight between them.

Channels share one credit pool. Connections are lost, lookups abandoned and answered in parts. The
frames that a client may send in each state are those of docs/reference/wire-protocol.md.
"""

from collections import deque

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.backlog import ChannelAnswer
from lookup_core.protocol.client_channel import ClientChannel
from lookup_core.protocol.credit_ledger import CreditLedger, Grant
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.sent_lookups import QuestionId
from lookup_core.protocol.server_channel import ServerChannel
from tests.lookup_core.hypothesis_runs import QUICK_AND_FULL, run_model
from tests.lookup_core.protocol.channel_frames import (
    REQUEST,
    fetched,
    key_values,
    opened,
    result,
    sent_keys,
)

CHANNELS = 3
POOL_BYTES = 400 * 1024  # so small that the channels need each other's credit
SIZES = [1, 30, 3_000, 20_000, 33_600, 60_000]  # of keys; the last one is larger than any share
MAY_SEND: dict[str, tuple[type[Frame], ...]] = {
    "free": (),
    "opening": (),
    "open": (frames.Lookup, frames.Watermark, frames.Status, frames.Cancel),
    "leaving": (frames.Cancel,),
}


def key_of(number: int, size: int) -> str:
    """A key with this number, which is also its event time, and about this size."""
    return f"{number:08}".ljust(size, "x")


def number_of(key: str) -> int:
    """The number of a key."""
    return int(key[:8])


class Line:
    """A client channel, its server channel, and the frames between them."""

    def __init__(self, ledger: CreditLedger[int], owner: int) -> None:
        self.ledger = ledger
        self.owner = owner
        self.client = ClientChannel(1, REQUEST)
        self.numbers: dict[int, range] = {}  # {question: of its keys}
        self.unanswered: dict[int, set[int]] = {}  # {question: positions}
        self.to_client: deque[Frame] = deque()
        self.connect()

    def lose(self, received: int) -> None:
        """The connection is lost; this many answers were received, and are decoded later."""
        self.client.on_lost()
        self.state = "free"
        for frame in [each for each in self.to_client if isinstance(each, frames.Result)][
            :received
        ]:
            self.take_result(frame)
        self.connect()

    def connect(self) -> None:
        """Begin a connection without frames in flight, except OPENED."""
        self.ledger.close(self.owner)
        share = self.ledger.open(self.owner)
        assert share is not None
        self.server = ServerChannel(1, "customers", "", ledger=self.ledger, owner=self.owner)
        self.left = share  # credit that the client may know of
        self.sequence = 0
        self.watermark_ms = -1
        self.received: set[int] = set()  # numbers
        self.held: dict[int, dict[int, int]] = {}  # {sequence: {open position: number}}
        self.costs: dict[int, Grant] = {}
        self.to_server: deque[Frame] = deque()
        self.to_client = deque([opened(share.records, share.bytes)])
        self.client.open()
        self.state = "opening"

    def leave(self) -> None:
        """GOAWAY arrives, possibly before OPENED."""
        self.client.pause()
        self.state = "leaving"

    def send(self, sending: list[Frame]) -> None:
        """Put frames that the state allows in flight, and take the client's own answers."""
        assert all(isinstance(frame, MAY_SEND[self.state]) for frame in sending)
        self.to_server += sending
        for refused in self.client.pop_refused():
            assert set(refused.answer.errors.values()) == {ErrorCode.KEY_TOO_LARGE}
            self.unanswered[refused.question] -= set(refused.answer.positions.tolist())

    def look_up(self, question: int, numbers: range, sizes: list[int]) -> None:
        """Look up keys of these numbers; the first of them have these sizes."""
        self.numbers[question], self.unanswered[question] = numbers, set(range(len(numbers)))
        keys = map(key_of, numbers, [*sizes, *[8] * len(numbers)])
        self.send(self.client.look_up(sent_keys(question, *keys), now_s=0.0))

    def arrive(self) -> None:
        """The server takes the oldest frame."""
        match frame := self.to_server.popleft():
            case frames.Lookup():
                self.take_lookup(frame)
            case frames.Watermark():
                # Every earlier key without an answer has arrived before it.
                waiting = {
                    self.numbers[q][at] for q, left in self.unanswered.items() for at in left
                }
                assert {each for each in waiting if each < frame.watermark_ms} <= self.received
                self.watermark_ms = max(self.watermark_ms, frame.watermark_ms)
                self.server.on_watermark(frame.watermark_ms)
            case frames.Cancel():
                self.end(frame.sequence)

    def take_lookup(self, frame: frames.Lookup) -> None:
        """The server takes a lookup, within its credit and behind no later watermark."""
        numbers = [number_of(key) for key in key_values(frame)]
        self.sequence += 1
        assert frame.sequence == self.sequence
        assert min(numbers) >= self.watermark_ms
        cost = Grant(len(numbers), len(frame.payload))
        self.left = self.left.minus(cost)
        self.costs[frame.sequence], self.held[frame.sequence] = cost, dict(enumerate(numbers))
        self.received.update(numbers)
        self.reply(self.server.on_lookup(frame, len(numbers)))

    def overdraw(self) -> None:
        """A lookup beyond the credit, or out of sequence, is refused and changes nothing."""
        before = self.server.statistics(1)
        over = ErrorCode.CREDIT_VIOLATION
        for skipped, records, size, code in (
            (0, self.left.records + 1, 0, over),
            (0, 0, self.left.bytes + 1, over),
            (1, 0, 0, ErrorCode.SEQUENCE_GAP),
        ):
            frame = frames.Lookup(1, self.sequence + 1 + skipped, 9, 50, bytes(size))
            with pytest.raises(ProtocolViolation) as caught:
                self.server.on_lookup(frame, records)
            assert caught.value.code is code
        assert self.server.statistics(1) == before

    def answer(self, sequence: int, count: int) -> None:
        """The server answers at most this number of open positions of a lookup."""
        still_open = self.held[sequence]
        names = {at: f"name {still_open.pop(at)}" for at in [*still_open][:count]}
        self.to_client.append(result(sequence, fetched(names), is_last=not still_open))
        if not still_open:
            self.end(sequence)
            return
        back, left = self.server.on_answered(sequence, len(names)), self.costs[sequence]
        if back is not None:
            assert back.records <= len(names)
            self.costs[sequence] = left.minus(Grant(back.records, back.bytes))
        self.reply(back)

    def end(self, sequence: int) -> None:
        """A lookup ends by its last answer or by a cancel; at most its cost comes back."""
        self.held.pop(sequence, None)
        cost, back = self.costs.pop(sequence, None), self.server.on_ended(sequence)
        assert (cost is None) == (back is None)
        if cost is not None and back is not None:
            assert back.records <= cost.records
            assert back.bytes <= cost.bytes
        self.reply(back)

    def reply(self, credit: frames.Credit | None) -> None:
        """Put credit in flight."""
        if credit is not None:
            self.to_client.append(credit)

    def come_back(self) -> None:
        """The client takes the oldest frame."""
        match frame := self.to_client.popleft():
            case frames.Opened():
                self.state = "open" if self.state == "opening" else self.state
                self.send(self.client.on_opened(frame, now_s=0.0))
            case frames.Credit():
                self.server.on_credit_sent()
                self.left = self.left.plus(Grant(frame.records, frame.bytes))
                self.send(self.client.on_credit(frame, now_s=0.0))
            case frames.Result():
                self.take_result(frame)

    def take_result(self, frame: frames.Result) -> None:
        """The client decodes an answer."""
        answered = self.client.on_result(frame)
        if answered is not None:
            self.note(answered)
        self.send(self.client.resume(now_s=0.0))

    def note(self, answered: ChannelAnswer) -> None:
        """Note rows, which are those of their keys; an answered key has no second row."""
        assert answered.answer.rows is not None
        positions = answered.answer.positions.tolist()
        expected = [f"name {self.numbers[answered.question][position]}" for position in positions]
        assert answered.answer.rows.column(0).to_pylist() == expected
        assert self.unanswered[answered.question].issuperset(positions)
        self.unanswered[answered.question] -= set(positions)

    def settle(self) -> None:
        """Let all frames arrive and all lookups be answered."""
        while self.to_server or self.to_client or self.held:
            while self.to_server:
                self.arrive()
            for sequence in list(self.held):
                self.answer(sequence, 999)
            while self.to_client:
                self.come_back()


lines = st.integers(0, CHANNELS - 1)


class ChannelModel(RuleBasedStateMachine):
    """Three channels of one pool."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = CreditLedger[int](POOL_BYTES, max_channels=CHANNELS)
        self.lines = [Line(self.ledger, owner) for owner in range(CHANNELS)]
        for line in self.lines:
            line.come_back()
        self.questions = self.now = 0

    @rule(line=lines, count=st.integers(1, 300), sizes=st.lists(st.sampled_from(SIZES), max_size=4))
    def look_up(self, line: int, count: int, sizes: list[int]) -> None:
        """A client looks up some large keys and many small ones."""
        self.questions += 1
        numbers = range(self.now, self.now + count)
        self.now += count
        self.lines[line].look_up(self.questions, numbers, sizes)

    @rule(line=lines)
    def mark(self, line: int) -> None:
        """A client sends a watermark: later keys have later numbers."""
        self.lines[line].send(self.lines[line].client.mark(self.now, now_s=0.0))

    @precondition(lambda self: any(line.to_server for line in self.lines))
    @rule(choice=st.data())
    def arrive(self, choice: st.DataObject) -> None:
        """A frame of a client arrives."""
        choice.draw(st.sampled_from([each for each in self.lines if each.to_server])).arrive()

    @precondition(lambda self: any(line.held for line in self.lines))
    @rule(choice=st.data(), count=st.integers(1, 400))
    def answer(self, choice: st.DataObject, count: int) -> None:
        """A part of a lookup is answered."""
        line = choice.draw(st.sampled_from([each for each in self.lines if each.held]))
        line.answer(choice.draw(st.sampled_from(sorted(line.held))), count)

    @precondition(lambda self: any(line.to_client for line in self.lines))
    @rule(choice=st.data())
    def come_back(self, choice: st.DataObject) -> None:
        """A frame of the server arrives."""
        choice.draw(st.sampled_from([each for each in self.lines if each.to_client])).come_back()

    @rule(line=lines, received=st.integers(0, 3))
    def lose(self, line: int, received: int) -> None:
        """A connection is lost."""
        self.lines[line].lose(received)

    @precondition(lambda self: self.questions % 4 == 3)  # rarely: nothing is sent from then on
    @rule(line=lines)
    def leave(self, line: int) -> None:
        """The service drains a connection."""
        self.lines[line].leave()

    @rule(line=lines)
    def fall_silent(self, line: int) -> None:
        """The input of a client pauses."""
        self.lines[line].send(self.lines[line].client.on_silence(now_s=0.0))

    @rule(line=lines)
    def overdraw(self, line: int) -> None:
        """A client breaks the protocol."""
        self.lines[line].overdraw()

    @rule(choice=st.data())
    def abandon(self, choice: st.DataObject) -> None:
        """A client abandons a question."""
        line = choice.draw(st.sampled_from(self.lines))
        open_questions = sorted(each for each, left in line.unanswered.items() if left)
        if open_questions:
            question = choice.draw(st.sampled_from(open_questions))
            line.unanswered[question] = set()
            line.send(line.client.abandon(QuestionId(question), now_s=0.0))

    @invariant()
    def credit_is_consistent(self) -> None:
        """Pool, server and client agree on the credit at any time."""
        self.ledger.check_invariants()
        for line in self.lines:
            line.client.check_invariants()
            line.server.check_invariants()
            assert line.server.statistics(1).credit_records == line.left.records

    def teardown(self) -> None:
        """In the end every key is answered, and all credit is back."""
        for line in self.lines:
            if line.state == "leaving":
                line.lose(0)
            line.settle()
        for line in self.lines:
            client, server = line.client.statistics(), line.server.statistics(1)
            assert not any(line.unanswered.values())
            assert (client.backlog_records, server.in_flight_records) == (0, 0)
            assert (line.client.is_quiet, client.credit_records) == (True, server.credit_records)
            self.ledger.close(line.owner)
        assert self.ledger.statistics().floating_records == 0


@QUICK_AND_FULL
def test_channels_answer_every_key(examples: int) -> None:
    """With losses, cancels and delays, each key is answered and no credit is lost."""
    run_model(ChannelModel, examples, steps=50)
