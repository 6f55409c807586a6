"""Both sides of the credit at once: clients and service, with frames on their way between them.

Whatever is lost, cancelled or answered late: nobody breaks the rules, and all ends.
"""

from collections import deque

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lookup_core.answer import Outcome, rowless_answer
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import answer_batch, decode_batch, encode_batch
from lookup_core.protocol.client_channel import ChannelRequest, ClientChannel
from lookup_core.protocol.credit_ledger import CreditLedger
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from lookup_core.protocol.server_channel import ServerChannel

KEY = pa.schema({"id": pa.utf8()})
REQUEST = ChannelRequest("customers", (), "a test", KEY)
CHANNELS = 3
POOL_BYTES = 400 * 1024  # so small that the channels need each other's credit
SIZES = [1, 30, 3_000, 20_000, 33_600, 60_000]  # of keys; the last one is larger than any share


class Line:
    """One channel of a client, one of the service, and what is on its way."""

    def __init__(self, ledger: CreditLedger[int], owner: int) -> None:
        self.ledger = ledger
        self.owner = owner
        self.client = ClientChannel(1, REQUEST)
        self.unanswered: dict[int, set[int]] = {}  # {question: positions}
        self.connect()

    def connect(self) -> None:
        """A new connection, on which nothing has arrived yet."""
        self.ledger.close(self.owner)
        share = self.ledger.open(self.owner)
        assert share is not None
        self.service = ServerChannel(1, "customers", "a test", ledger=self.ledger, owner=self.owner)
        self.held: dict[int, int] = {}  # {sequence: records}
        self.to_service: deque[Frame] = deque()
        self.to_client: deque[Frame] = deque()
        self.client.open()
        opened = frames.Opened(1, share.records, share.bytes, pa.schema([]), ("id",))
        self.send(self.client.on_opened(opened, now_s=0.0))

    def send(self, sending: list[Frame]) -> None:
        """Put the client's frames on their way."""
        self.to_service += sending
        for refused in self.client.pop_refused():
            self.answered(refused.question, refused.answer.positions.tolist())

    def ask(self, question: int, keys: list[int]) -> None:
        """Ask for keys of these sizes."""
        self.unanswered[question] = set(range(len(keys)))
        batch = pa.record_batch([pa.array(["x" * size for size in keys])], KEY)
        self.send(self.client.ask(SentKeys(QuestionId(question), batch, 9.0), now_s=0.0))

    def arrive(self) -> None:
        """The service takes the next frame; a violation is the end of this test."""
        match frame := self.to_service.popleft():
            case frames.Lookup():
                records = decode_batch(frame.payload, KEY).num_rows
                self.held[frame.sequence] = records
                self.reply(self.service.on_lookup(frame, records))
            case frames.Cancel():
                if self.held.pop(frame.sequence, None) is not None:
                    self.reply(self.service.on_ended(frame.sequence))

    def answer(self, sequence: int) -> None:
        """The service answers a lookup as a whole."""
        positions = np.arange(self.held.pop(sequence), dtype=np.int32)
        payload = encode_batch(answer_batch(rowless_answer(positions, Outcome.MISSING)))
        self.to_client.append(frames.Result(1, sequence, True, False, payload))  # noqa: FBT003 -- the frame's own order
        self.reply(self.service.on_ended(sequence))

    def reply(self, credit: frames.Credit | None) -> None:
        """Put credit on its way."""
        if credit is not None:
            self.to_client.append(credit)

    def come_back(self) -> None:
        """The client takes the next frame."""
        match frame := self.to_client.popleft():
            case frames.Credit():
                self.service.on_credit_sent()
                self.send(self.client.on_credit(frame, now_s=0.0))
            case frames.Result():
                answered = self.client.on_result(frame)
                if answered is not None:
                    self.answered(answered.question, answered.answer.positions.tolist())
                self.send(self.client.resume(now_s=0.0))

    def answered(self, question: int, positions: list[int]) -> None:
        """Note answers, each of which comes once."""
        assert set(positions) <= self.unanswered[question]
        self.unanswered[question] -= set(positions)

    def settle(self) -> None:
        """Let everything arrive and be answered."""
        while self.to_service or self.to_client or self.held:
            while self.to_service:
                self.arrive()
            for sequence in list(self.held):
                self.answer(sequence)
            while self.to_client:
                self.come_back()


lines = st.integers(0, CHANNELS - 1)


class FlowMachine(RuleBasedStateMachine):
    """Three channels out of one pool."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = CreditLedger[int](POOL_BYTES, max_channels=CHANNELS)
        self.lines = [Line(self.ledger, owner) for owner in range(CHANNELS)]
        self.questions = 0

    @rule(line=lines, count=st.integers(1, 300), sizes=st.lists(st.sampled_from(SIZES), max_size=4))
    def ask(self, line: int, count: int, sizes: list[int]) -> None:
        """Many small keys, and some large ones among them."""
        self.questions += 1
        self.lines[line].ask(self.questions, [*sizes, *[8] * count])

    @precondition(lambda self: any(line.to_service for line in self.lines))
    @rule(choice=st.data())
    def arrive(self, choice: st.DataObject) -> None:
        """A frame of a client arrives."""
        choice.draw(st.sampled_from([each for each in self.lines if each.to_service])).arrive()

    @precondition(lambda self: any(line.held for line in self.lines))
    @rule(choice=st.data())
    def answer(self, choice: st.DataObject) -> None:
        """Some lookup is answered."""
        line = choice.draw(st.sampled_from([each for each in self.lines if each.held]))
        line.answer(choice.draw(st.sampled_from(sorted(line.held))))

    @precondition(lambda self: any(line.to_client for line in self.lines))
    @rule(choice=st.data())
    def come_back(self, choice: st.DataObject) -> None:
        """A frame of the service arrives."""
        choice.draw(st.sampled_from([each for each in self.lines if each.to_client])).come_back()

    @rule(line=lines)
    def lose(self, line: int) -> None:
        """A connection is lost with all that was on its way."""
        self.lines[line].connect()

    @rule(choice=st.data())
    def abandon(self, choice: st.DataObject) -> None:
        """A client gives a question up."""
        line = choice.draw(st.sampled_from(self.lines))
        open_questions = sorted(q for q, left in line.unanswered.items() if left)
        if open_questions:
            question = choice.draw(st.sampled_from(open_questions))
            line.unanswered[question] = set()
            line.send(line.client.abandon(QuestionId(question), now_s=0.0))

    @invariant()
    def books_agree(self) -> None:
        """Neither side's account is ever wrong."""
        self.ledger.check_invariants()
        for line in self.lines:
            line.client.check_invariants()
            line.service.check_invariants()

    def teardown(self) -> None:
        """In the end everything is answered, and all credit is where it belongs."""
        for line in self.lines:
            line.settle()
        assert [line.client.statistics().backlog_records for line in self.lines] == [0] * CHANNELS
        assert not any(left for line in self.lines for left in line.unanswered.values())
        assert all(line.service.statistics(1).in_flight_records == 0 for line in self.lines)
        for line in self.lines:
            granted = line.service.statistics(1)
            assert line.client.statistics().credit_records == granted.credit_records
            self.ledger.close(line.owner)
        assert self.ledger.statistics().floating_records == 0


TestFlow = FlowMachine.TestCase
TestFlow.settings = settings(max_examples=60, stateful_step_count=40)
