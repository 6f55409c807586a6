"""Model of client channels against stream servers, with frames in flight between them.

Channels share one credit pool and one byte budget. Connections are lost, lookups abandoned and
answered in parts. The frames that a client may send in each state are those of
docs/reference/wire-protocol.md.
"""

from collections import deque

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.backlog import ChannelAnswer
from lookup_core.protocol.client_channel import ClientChannel
from lookup_core.protocol.credit_ledger import Grant
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.sent_lookups import RunId
from lookup_core.protocol.server_channel import LookupPart
from tests.lookup_core.hypothesis_runs import QUICK_AND_FULL, run_model
from tests.lookup_core.protocol.channel_frames import REQUEST, fetched, key_values, sent_keys
from tests.lookup_core.protocol.stream_lines import Line, StreamService, lookup

CHANNELS = 3
POOL_BYTES = 400 * 1024  # so small that the channels need each other's credit
ANSWER_BYTES = 4_000  # so small that lookups wait for room
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


class ModelledChannel:
    """A client channel, its connection to a server, and the frames between them."""

    def __init__(self, service: StreamService) -> None:
        self.service = service
        self.client = ClientChannel(1, REQUEST)
        self.numbers: dict[int, range] = {}  # {run: of its keys}
        self.unanswered: dict[int, set[int]] = {}  # {run: positions}
        self.connect()

    @property
    def parts(self) -> list[LookupPart]:
        """The parts that wait for answers."""
        return self.line.parts

    def connect(self) -> None:
        """Begin a connection without frames in flight, except OPENED."""
        self.line: Line = self.service.connect()
        self.line.send(self.client.open())
        self.left = Grant(0, 0)  # credit that the client may know of
        self.watermark_ms = -1
        self.sequence = 0
        self.received: dict[int, list[int]] = {}  # {sequence: numbers}
        self.to_server: deque[Frame] = deque()
        self.state = "opening"

    def lose(self, received: int) -> None:
        """The connection is lost; this many answers were received, and are decoded later."""
        self.client.on_lost()
        self.state = "free"
        found = [frame for frame in self.line.received() if isinstance(frame, frames.Result)]
        for frame in found[:received]:
            self.take_result(frame)
        self.line.close()
        self.connect()

    def leave(self) -> None:
        """GOAWAY arrives, possibly before OPENED."""
        self.client.pause()
        self.state = "leaving"

    def send(self, sending: list[Frame]) -> None:
        """Put frames that the state allows in flight, and take the client's own answers."""
        assert all(isinstance(frame, MAY_SEND[self.state]) for frame in sending)
        self.to_server += sending
        for answered in self.client.pop_answers():
            self.note(answered)

    def look_up(self, run: int, numbers: range, sizes: list[int]) -> None:
        """Look up keys of these numbers; the first of them have these sizes."""
        self.numbers[run], self.unanswered[run] = numbers, set(range(len(numbers)))
        keys = map(key_of, numbers, [*sizes, *[8] * len(numbers)])
        self.send(self.client.look_up(sent_keys(run, *keys), now_s=0.0))

    def arrive(self) -> None:
        """The server takes the oldest frame."""
        match frame := self.to_server.popleft():
            case frames.Lookup():
                numbers = [int(key[:8]) for key in key_values(frame)]
                assert min(numbers) >= self.watermark_ms  # behind no later watermark
                self.sequence = frame.sequence
                self.received[frame.sequence] = numbers
                self.left = self.left.minus(Grant(len(numbers), len(frame.payload)))
            case frames.Watermark():
                # Every earlier key without an answer has arrived before it.
                waiting = {
                    self.numbers[q][at] for q, left in self.unanswered.items() for at in left
                }
                arrived = {number for numbers in self.received.values() for number in numbers}
                assert {each for each in waiting if each < frame.watermark_ms} <= arrived
                self.watermark_ms = max(self.watermark_ms, frame.watermark_ms)
        self.line.send(frame)

    def overdraw(self) -> None:
        """A lookup beyond the credit, or out of sequence, is refused and changes nothing."""
        if self.state == "free" or not self.received:
            return
        before = self.line.statistics()
        too_many = ["k"] * (self.left.records + 1)
        too_large = ["k" * (self.left.bytes + 1)]
        for skipped, keys, code in (
            (0, too_many, ErrorCode.CREDIT_VIOLATION),
            (0, too_large, ErrorCode.CREDIT_VIOLATION),
            (1, ["k"], ErrorCode.SEQUENCE_GAP),
        ):
            with pytest.raises(ProtocolViolation) as caught:
                self.line.send(lookup(self.sequence + 1 + skipped, *keys, backlog=50))
            assert caught.value.code is code
        assert self.line.statistics() == before

    def answer(self, part: int, count: int) -> None:
        """Answer at most this number of the last open positions of a part."""
        submitted = self.parts[part]
        numbers = self.received[submitted.lookup.sequence][submitted.start :]
        last = submitted.unanswered  # positions are answered from the last to the first
        names = {at: f"name {numbers[at]}" for at in range(max(last - count, 0), last)}
        server, now = self.line.server, self.service.now
        server.on_answer(submitted, fetched(names), now, reasons={})
        if not submitted.unanswered:
            del self.parts[part]

    def come_back(self) -> None:
        """The server sends its oldest frame, and the client takes it."""
        match frame := self.line.next_frame():
            case frames.Opened():
                self.left = Grant(frame.credit_records, frame.credit_bytes)
                self.state = "open" if self.state == "opening" else self.state
                self.send(self.client.receive(frame, now_s=0.0))
            case frames.Credit():
                self.left = self.left.plus(Grant(frame.records, frame.bytes))
                self.send(self.client.receive(frame, now_s=0.0))
            case frames.Result():
                self.take_result(frame)
            case _:
                raise AssertionError(frame)

    def take_result(self, frame: frames.Result) -> None:
        """The client decodes an answer."""
        assert self.client.receive(frame, now_s=0.0) == []
        for answered in self.client.pop_answers():
            self.note(answered)
        self.send(self.client.resume(now_s=0.0))

    def note(self, answered: ChannelAnswer) -> None:
        """Note rows, which are those of their keys; an answered key has no second row."""
        positions = answered.answer.positions.tolist()
        if answered.answer.rows is None:  # the channel itself refuses large keys
            assert set(answered.answer.errors.values()) == {ErrorCode.KEY_TOO_LARGE}
            self.unanswered[answered.run] -= set(positions)
            return
        expected = [f"name {self.numbers[answered.run][position]}" for position in positions]
        assert answered.answer.rows.column(0).to_pylist() == expected
        assert self.unanswered[answered.run].issuperset(positions)
        self.unanswered[answered.run] -= set(positions)

    def settle(self) -> None:
        """Let all frames arrive, and answer all submitted lookups."""
        while self.to_server:
            self.arrive()
        self.service.all_parts()
        while self.parts:
            self.answer(0, 999)
        while self.line.server.has_messages:
            self.come_back()
        self.line.received()  # nothing more: all were sent

    @property
    def is_settled(self) -> bool:
        """Whether nothing is under way."""
        return not self.to_server and not self.parts and self.line.server.is_idle


channels = st.integers(0, CHANNELS - 1)


class StreamModel(RuleBasedStateMachine):
    """Three channels of one pool."""

    def __init__(self) -> None:
        super().__init__()
        self.service = StreamService(
            pool_bytes=POOL_BYTES, channels=CHANNELS, answer_bytes=ANSWER_BYTES
        )
        self.channels = [ModelledChannel(self.service) for _ in range(CHANNELS)]
        for channel in self.channels:
            channel.come_back()
        self.runs = self.now = 0

    @rule(
        channel=channels,
        count=st.integers(1, 300),
        sizes=st.lists(st.sampled_from(SIZES), max_size=4),
    )
    def look_up(self, channel: int, count: int, sizes: list[int]) -> None:
        """A client looks up some large keys and many small ones."""
        self.runs += 1
        numbers = range(self.now, self.now + count)
        self.now += count
        self.channels[channel].look_up(self.runs, numbers, sizes)

    @rule(channel=channels)
    def mark(self, channel: int) -> None:
        """A client sends a watermark: later keys have later numbers."""
        client = self.channels[channel].client
        self.channels[channel].send(client.mark(self.now, now_s=0.0))

    @precondition(lambda self: any(channel.to_server for channel in self.channels))
    @rule(choice=st.data())
    def arrive(self, choice: st.DataObject) -> None:
        """A frame of a client arrives."""
        choice.draw(st.sampled_from([each for each in self.channels if each.to_server])).arrive()

    @rule()
    def take_turn(self) -> None:
        """The next part is submitted, if one fits."""
        self.service.next_part()

    @precondition(lambda self: any(channel.parts for channel in self.channels))
    @rule(choice=st.data(), count=st.integers(1, 400))
    def answer(self, choice: st.DataObject, count: int) -> None:
        """Some records of a part are answered."""
        channel = choice.draw(st.sampled_from([each for each in self.channels if each.parts]))
        channel.answer(choice.draw(st.integers(0, len(channel.parts) - 1)), count)

    @precondition(lambda self: any(each.line.server.has_messages for each in self.channels))
    @rule(choice=st.data())
    def come_back(self, choice: st.DataObject) -> None:
        """A frame of the server arrives."""
        sending = [each for each in self.channels if each.line.server.has_messages]
        choice.draw(st.sampled_from(sending)).come_back()

    @rule(channel=channels, received=st.integers(0, 3))
    def lose(self, channel: int, received: int) -> None:
        """A connection is lost."""
        self.channels[channel].lose(received)

    @precondition(lambda self: self.runs % 4 == 3)  # rarely: nothing is sent from then on
    @rule(channel=channels)
    def leave(self, channel: int) -> None:
        """The service drains a connection."""
        self.channels[channel].leave()

    @rule(channel=channels)
    def fall_silent(self, channel: int) -> None:
        """The input of a client pauses."""
        client = self.channels[channel].client
        self.channels[channel].send(client.on_silence(now_s=0.0))

    @rule(channel=channels)
    def overdraw(self, channel: int) -> None:
        """A client breaks the protocol."""
        self.channels[channel].overdraw()

    @rule(choice=st.data())
    def abandon(self, choice: st.DataObject) -> None:
        """A client abandons a run."""
        channel = choice.draw(st.sampled_from(self.channels))
        open_runs = sorted(each for each, left in channel.unanswered.items() if left)
        if open_runs:
            run = choice.draw(st.sampled_from(open_runs))
            channel.unanswered[run] = set()
            channel.send(channel.client.abandon(RunId(run), now_s=0.0))

    @invariant()
    def both_sides_agree(self) -> None:
        """Registry, servers and clients agree on the credit at any time."""
        self.service.registry.check_invariants()
        for channel in self.channels:
            channel.client.check_invariants()
            channel.line.server.check_invariants()
            if channel.left != Grant(0, 0):
                assert channel.line.statistics().credit_records == channel.left.records

    def teardown(self) -> None:
        """In the end every key is answered, and all credit and bytes are back."""
        for channel in self.channels:
            if channel.state == "leaving":
                channel.lose(0)
        while len(self.service.registry.turns) or not all(
            channel.is_settled for channel in self.channels
        ):
            for channel in self.channels:
                channel.settle()
        for channel in self.channels:
            client, server = channel.client.statistics(), channel.line.statistics()
            assert not any(channel.unanswered.values())
            assert (client.backlog_records, server.in_flight_records) == (0, 0)
            assert client.credit_records == server.credit_records
            assert channel.client.is_quiet
        assert self.service.used_bytes == 0
        for channel in self.channels:
            channel.line.close()
        assert self.service.registry.statistics() == []
        self.service.registry.check_invariants()


@QUICK_AND_FULL
def test_streams_answer_every_key(examples: int) -> None:
    """With losses, cancels and delays, each key is answered and no credit or byte is lost."""
    run_model(StreamModel, examples, steps=50)
