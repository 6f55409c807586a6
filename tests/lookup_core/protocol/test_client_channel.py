"""One channel of the client: credit, replay, and answers in the right places."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ErrorCode, InvalidRequest, ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import answer_batch, decode_batch, encode_batch
from lookup_core.protocol.client_channel import ChannelRequest, ChannelStatistics, ClientChannel
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys

KEY = pa.schema({"id": pa.int64()})
COLUMNS = pa.schema({"name": pa.utf8()})
REQUEST = ChannelRequest("customers", ("name",), "a test", KEY)


def keys(*values: int) -> pa.RecordBatch:
    """A batch of keys."""
    return pa.record_batch([pa.array(values, pa.int64())], KEY)


def asked(question: int, *values: int, deadline_s: float = 9.0) -> SentKeys:
    """A question's keys."""
    return SentKeys(QuestionId(question), keys(*values), deadline_s)


def opened(records: int = 100, size: int = 100_000) -> frames.Opened:
    """The service's answer to OPEN."""
    return frames.Opened(1, records, size, COLUMNS, ("id",))


def result(sequence: int, answer: Answer, *, is_last: bool = True) -> frames.Result:
    """A RESULT frame."""
    payload = encode_batch(answer_batch(answer))
    return frames.Result(1, sequence, is_last, answer.rows is not None, payload)


def missing(*positions: int) -> Answer:
    """No row for these positions."""
    return rowless_answer(np.array(positions, np.int32), Outcome.MISSING)


def summary(sent: list[Frame]) -> list[Any]:
    """Frames in short: lookups as (sequence, keys), the others as they are."""
    return [
        (frame.sequence, decode_batch(frame.payload, KEY).column(0).to_pylist())
        if isinstance(frame, frames.Lookup)
        else frame
        for frame in sent
    ]


@pytest.fixture
def channel() -> ClientChannel:
    """A channel that stands."""
    channel = ClientChannel(1, REQUEST)
    channel.open()
    channel.on_opened(opened(), now_s=0.0)
    return channel


def test_nothing_is_sent_before_opened() -> None:
    """What is asked waits until the channel stands, and then goes in order."""
    channel = ClientChannel(1, REQUEST)

    assert channel.open() == frames.Open(1, "customers", ("name",), "a test", KEY)
    assert channel.ask(asked(1, 7, 8), now_s=0.0) == []
    assert channel.mark(5, now_s=0.0) == []
    sent = channel.on_opened(opened(), now_s=0.0)

    assert summary(sent) == [(1, [7, 8]), frames.Watermark(1, 5)]
    channel.check_invariants()


def test_silence_is_told_once(channel: ClientChannel) -> None:
    """A silent input makes the channel idle; what comes next is told behind its being active."""
    assert channel.on_silence(now_s=0.0) == [frames.Status(1, is_idle=True)]
    assert channel.on_silence(now_s=1.0) == []

    assert summary(channel.ask(asked(1, 7), now_s=2.0)) == [
        frames.Status(1, is_idle=False),
        (1, [7]),
    ]
    assert channel.mark(5, now_s=2.0) == [frames.Watermark(1, 5)]


def test_watermark_ends_the_silence(channel: ClientChannel) -> None:
    """Whoever is idle has no say about event time, so it is active before its watermark."""
    channel.on_silence(now_s=0.0)

    assert channel.mark(5, now_s=0.0) == [frames.Status(1, is_idle=False), frames.Watermark(1, 5)]
    assert channel.on_silence(now_s=0.0) == [frames.Status(1, is_idle=True)]


def test_backlog_goes_before_the_silence() -> None:
    """A channel that waits for credit still has something to say."""
    channel = ClientChannel(1, REQUEST)
    channel.open()
    channel.on_opened(opened(records=1), now_s=0.0)
    channel.ask(asked(1, 7, 8), now_s=0.0)
    channel.mark(5, now_s=0.0)

    assert channel.on_silence(now_s=0.0) == []
    assert summary(channel.on_credit(frames.Credit(1, 1, 0), now_s=0.0)) == [
        (2, [8]),
        frames.Watermark(1, 5),
        frames.Status(1, is_idle=True),
    ]


def test_silence_is_told_on_each_connection(channel: ClientChannel) -> None:
    """A new connection begins active: it is told behind what is sent again."""
    channel.mark(5, now_s=0.0)
    channel.on_silence(now_s=0.0)

    channel.open()
    assert channel.on_silence(now_s=0.0) == []
    assert channel.on_opened(opened(), now_s=0.0) == [
        frames.Watermark(1, 5),
        frames.Status(1, is_idle=True),
    ]
    channel.open()
    channel.mark(6, now_s=0.0)
    sent = channel.on_opened(opened(), now_s=0.0)
    assert sent[-1] == frames.Watermark(1, 6)


def test_failed_connections_multiply_no_watermark(channel: ClientChannel) -> None:
    """However often a channel is asked for before it stands, what it told is told again once."""
    channel.mark(5, now_s=0.0)

    for _ in range(3):
        channel.open()

    assert channel.on_opened(opened(), now_s=0.0) == [frames.Watermark(1, 5)]


def test_lookup_tells_time_and_backlog(channel: ClientChannel) -> None:
    """The remaining time is rounded up, never zero; the backlog is what still waits."""
    channel.on_opened(opened(records=2), now_s=0.0)

    (first,) = channel.ask(asked(1, 1, 2, 3), now_s=8.9995)
    (second,) = channel.on_credit(frames.Credit(1, 2, 0), now_s=50.0)

    assert isinstance(first, frames.Lookup)
    assert isinstance(second, frames.Lookup)
    assert (first.timeout_ms, first.backlog_records) == (1, 1)
    assert (second.timeout_ms, second.backlog_records) == (1, 0)


def test_no_deadline_is_the_longest_timeout(channel: ClientChannel) -> None:
    """A lookup without end travels with the largest number that fits."""
    (lookup,) = channel.ask(asked(1, 1, deadline_s=float("inf")), now_s=0.0)

    assert isinstance(lookup, frames.Lookup)
    assert lookup.timeout_ms == 2**32 - 1


def test_credit_splits_a_question(channel: ClientChannel) -> None:
    """Keys beyond the credit wait; answers come back with the question's own positions."""
    channel.on_opened(opened(records=2), now_s=0.0)

    (lookup,) = channel.ask(asked(1, 10, 11, 12), now_s=0.0)

    assert isinstance(lookup, frames.Lookup)
    assert summary([lookup]) == [(1, [10, 11])]
    assert channel.statistics() == ChannelStatistics(0, 100_000 - len(lookup.payload), 2, 1)
    assert summary(channel.on_credit(frames.Credit(1, 2, 500), now_s=0.0)) == [(2, [12])]
    faulty = rowless_answer(np.array([0], np.int32), Outcome.ERROR, error=ErrorCode.TYPE)
    answered = channel.on_result(result(2, faulty))

    assert answered is not None
    assert answered.question == QuestionId(1)
    assert answered.answer.positions.tolist() == [2]
    assert answered.answer.errors == {2: ErrorCode.TYPE}


def test_bytes_split_a_question(channel: ClientChannel) -> None:
    """The payload never exceeds the credit in bytes."""
    whole = _size(*range(1000))
    channel.on_opened(opened(records=5000, size=whole // 2), now_s=0.0)

    (lookup,) = channel.ask(asked(1, *range(1000)), now_s=0.0)

    assert isinstance(lookup, frames.Lookup)
    assert whole // 3 < len(lookup.payload) <= whole // 2
    channel.check_invariants()


def test_too_large_key_is_answered_at_once() -> None:
    """A key that can never be sent has an error of its own; its neighbours are looked up."""
    key = pa.schema({"id": pa.utf8()})
    channel = ClientChannel(1, ChannelRequest("customers", ("name",), "a test", key))
    batch = pa.record_batch([pa.array(["a", "b" * 9000, "c"])], key)
    channel.open()
    assert channel.ask(SentKeys(QuestionId(4), batch, 9.0), now_s=0.0) == []
    assert channel.pop_refused() == []  # what is too large is known once the channel stands

    sent = channel.on_opened(opened(size=8000), now_s=0.0)

    payloads = [frame.payload for frame in sent if isinstance(frame, frames.Lookup)]
    assert [decode_batch(each, key).column(0).to_pylist() for each in payloads] == [["a"], ["c"]]
    (refused,) = channel.pop_refused()
    assert refused.question == QuestionId(4)
    assert refused.answer.errors == {1: ErrorCode.KEY_TOO_LARGE}
    assert channel.pop_refused() == []


def test_end_of_a_lookup_lets_others_go(channel: ClientChannel) -> None:
    """What was held back as a sliver goes when nothing is left to wait for, also without CREDIT."""
    channel.on_opened(opened(records=10), now_s=0.0)
    channel.ask(asked(1, *range(9)), now_s=0.0)
    assert channel.ask(asked(2, *range(9)), now_s=0.0) == []

    channel.on_result(result(1, missing(*range(9))))

    assert summary(channel.resume(now_s=0.0)) == [(2, [0])]


def test_unanswered_goes_out_again_after_loss(channel: ClientChannel) -> None:
    """After a loss everything without its last answer is sent anew, before what waited."""
    channel.ask(asked(1, 1), now_s=0.0)
    channel.ask(asked(2, 2), now_s=0.0)
    channel.mark(70, now_s=0.0)
    channel.on_result(result(1, missing(0)))

    channel.open()
    assert channel.ask(asked(3, 3), now_s=0.0) == []
    sent = channel.on_opened(opened(), now_s=0.0)

    assert summary(sent) == [(1, [2]), frames.Watermark(1, 70), (2, [3])]
    channel.check_invariants()


def test_abandoned_question_is_cancelled(channel: ClientChannel) -> None:
    """What was sent is cancelled, what waited is dropped, what stood behind it goes."""
    channel.on_opened(opened(records=2), now_s=0.0)
    channel.ask(asked(1, 1, 2, 3, 4, 5, 6, 7, 8, 9), now_s=0.0)
    channel.mark(3, now_s=0.0)

    sent = channel.abandon(QuestionId(1), now_s=0.0)

    assert sent == [frames.Cancel(1, 1), frames.Watermark(1, 3)]
    assert channel.on_result(result(1, missing(0))) is None
    assert channel.is_quiet
    channel.check_invariants()


def test_paused_channel_sends_nothing(channel: ClientChannel) -> None:
    """Answers still arrive, new lookups wait, late credit is not taken over."""
    channel.ask(asked(1, 1), now_s=0.0)

    channel.pause()

    assert channel.ask(asked(2, 2), now_s=0.0) == []
    assert channel.on_credit(frames.Credit(1, 5, 500), now_s=0.0) == []
    assert not channel.is_quiet
    assert channel.on_result(result(1, missing(0))) is not None
    assert channel.is_quiet


@pytest.mark.parametrize(
    "answer",
    [
        missing(2),
        missing(-1),
        missing(0, 0),
        rowless_answer(np.array([0], np.int32), Outcome.HIT),
        Answer(
            np.array([0], np.int32),
            np.array([Outcome.MISSING], np.uint8),
            np.zeros(1, np.uint32),
            pa.record_batch([pa.array(["x"])], COLUMNS),
        ),
    ],
)
def test_impossible_answers_are_violations(channel: ClientChannel, answer: Answer) -> None:
    """Positions that were not asked, twice the same, or rows that contradict the outcome."""
    channel.ask(asked(1, 1, 2), now_s=0.0)

    with pytest.raises(ProtocolViolation):
        channel.on_result(result(1, answer))


def test_unknown_error_code_is_a_violation(channel: ClientChannel) -> None:
    """A code that this version does not know is not guessed at."""
    channel.ask(asked(1, 1), now_s=0.0)
    answer = answer_batch(missing(0))
    strange = answer.set_column(answer.num_columns - 1, "error", pa.array(["moon"]))

    with pytest.raises(ProtocolViolation, match="error code"):
        channel.on_result(frames.Result(1, 1, True, False, encode_batch(strange)))  # noqa: FBT003


def test_changed_columns_end_the_channel(channel: ClientChannel) -> None:
    """After a reconnect the columns must be those that were promised downstream."""
    channel.open()

    with pytest.raises(InvalidRequest, match="columns"):
        channel.on_opened(
            frames.Opened(1, 1, 1, pa.schema({"name": pa.int32()}), ("id",)), now_s=0.0
        )


VERSIONS = VersionColumns("since")


def opened_with_versions() -> frames.Opened:
    """Of a dimension with versions, with credit for a single key."""
    return frames.Opened(1, 1, 100_000, COLUMNS, ("id",), VERSIONS, waits=True)


def event_times(sent: list[Frame]) -> list[int | None]:
    """Those of the lookups among the frames."""
    return [frame.event_time_ms for frame in sent if isinstance(frame, frames.Lookup)]


def test_event_time_travels_with_its_keys() -> None:
    """Each lookup of a question has it, also when it is sent again after a loss."""
    channel = ClientChannel(1, replace(REQUEST, is_as_of=True))
    opening = channel.open()
    channel.on_opened(opened_with_versions(), now_s=0.0)
    first = channel.ask(replace(asked(1, 7, 8), event_time_ms=5), now_s=0.0)
    channel.open()
    again = channel.on_opened(opened_with_versions(), now_s=0.0)
    rest = channel.on_credit(frames.Credit(1, 1, 1000), now_s=0.0)

    assert opening.is_as_of
    assert channel.versions == VERSIONS
    assert [event_times(each) for each in (first, again, rest)] == [[5], [5], [5]]


def test_service_that_does_not_wait_is_told_no_time(channel: ClientChannel) -> None:
    """Who does not know event times of lookups would take one for a fault."""
    sent = channel.ask(replace(asked(1, 7), event_time_ms=5), now_s=0.0)

    assert event_times(sent) == [None]


def test_who_is_told_times_may_change() -> None:
    """After a reconnect it is what the service says then; that alone ends no channel."""
    channel = ClientChannel(1, REQUEST)
    channel.open()
    waits = channel.on_opened(opened_with_versions(), now_s=0.0)
    waits += channel.ask(replace(asked(1, 7), event_time_ms=5), now_s=0.0)
    channel.open()

    again = channel.on_opened(replace(opened_with_versions(), waits=False), now_s=0.0)

    assert [event_times(each) for each in (waits, again)] == [[5], [None]]


def test_changed_versions_end_the_channel() -> None:
    """After a reconnect other columns would say when a row is valid."""
    channel = ClientChannel(1, REQUEST)
    channel.open()
    channel.on_opened(opened_with_versions(), now_s=0.0)

    with pytest.raises(InvalidRequest, match="columns"):
        channel.on_opened(replace(opened_with_versions(), versions=None), now_s=0.0)


class Service:
    """The other side: holds the client to the protocol, and answers in parts."""

    def __init__(self, records: int, size: int) -> None:
        self.grant = (records, size)
        self.lose()

    def lose(self) -> None:
        """Forget everything, as after a restart."""
        self.left_records, self.left_bytes = self.grant
        self.lookups: dict[int, list[int]] = {}  # {sequence: keys}, unanswered
        self.answered: dict[int, set[int]] = {}  # {sequence: positions}
        self.costs: dict[int, tuple[int, int]] = {}
        self.sequence = 0
        self.watermark = -1

    def take(self, sent: list[Frame], unanswered: set[int]) -> None:
        """Check what comes in; a key is the time at which it was asked."""
        for frame in sent:
            match frame:
                case frames.Lookup():
                    self._take_lookup(frame)
                case frames.Watermark(watermark_ms=watermark_ms):
                    self.watermark = max(self.watermark, watermark_ms)
                    waiting = {key for values in self.lookups.values() for key in values}
                    assert {key for key in unanswered if key < watermark_ms} <= waiting
                case frames.Cancel(sequence=sequence):
                    self.lookups.pop(sequence)

    def answer(self, sequence: int, count: int) -> frames.Result:
        """Answer at most `count` more positions of a lookup."""
        values = self.lookups[sequence]
        done = self.answered[sequence]
        positions = [place for place in range(len(values)) if place not in done][:count]
        done.update(positions)
        is_last = len(done) == len(values)
        if is_last:
            del self.lookups[sequence]
        names = pa.array([f"name {values[place]}" for place in positions])
        outcomes = np.full(len(positions), Outcome.FETCHED, np.uint8)
        ages = np.zeros(len(positions), np.uint32)
        places = np.array(positions, np.int32)
        rows = pa.record_batch([names], COLUMNS)
        return result(sequence, Answer(places, outcomes, ages, rows), is_last=is_last)

    def credit(self) -> frames.Credit:
        """Give back what ended lookups had cost."""
        ended = [sequence for sequence in self.costs if sequence not in self.lookups]
        costs = [self.costs.pop(sequence) for sequence in ended]
        records, size = sum(cost[0] for cost in costs), sum(cost[1] for cost in costs)
        self.left_records += records
        self.left_bytes += size
        return frames.Credit(1, records, size)

    def _take_lookup(self, lookup: frames.Lookup) -> None:
        self.sequence += 1
        values = decode_batch(lookup.payload, KEY).column(0).to_pylist()
        assert lookup.sequence == self.sequence
        assert min(values) >= self.watermark
        self.left_records -= len(values)
        self.left_bytes -= len(lookup.payload)
        assert self.left_records >= 0
        assert self.left_bytes >= 0
        self.lookups[lookup.sequence] = values
        self.answered[lookup.sequence] = set()
        self.costs[lookup.sequence] = (len(values), len(lookup.payload))


class Story:
    """A client channel and its service through any sequence of events."""

    def __init__(self, records: int, size: int) -> None:
        self.service = Service(records, size)
        self.channel = ClientChannel(1, REQUEST)
        self.now = 0  # also the next key: what was asked earlier is smaller
        self.expected: dict[int, list[int]] = {}  # {question: keys}
        self.got: dict[int, dict[int, str]] = {}  # {question: {position: name}}
        self.reconnect()

    def reconnect(self, _: int = 0) -> None:
        """The connection was lost and stands again."""
        self.service.lose()
        self.channel.open()
        self._take(self.channel.on_opened(opened(*self.service.grant), now_s=0.0))

    def ask(self, count: int) -> None:
        """Ask for new keys."""
        question, values = len(self.got), list(range(self.now, self.now + count + 1))
        self.now += count + 1
        self.expected[question], self.got[question] = values, {}
        self._take(self.channel.ask(asked(question, *values), now_s=0.0))

    def mark(self, _: int) -> None:
        """A watermark: what is asked later is not smaller."""
        self._take(self.channel.mark(self.now, now_s=0.0))

    def answer(self, choice: int) -> None:
        """The service answers a part of some lookup."""
        if self.service.lookups:
            sequence = sorted(self.service.lookups)[choice % len(self.service.lookups)]
            answered = self.channel.on_result(self.service.answer(sequence, choice + 1))
            assert answered is not None
            names = answered.answer.rows.column(0).to_pylist() if answered.answer.rows else []
            places = answered.answer.positions.tolist()
            self.got[answered.question] |= dict(zip(places, names, strict=True))

    def credit(self, _: int = 0) -> None:
        """The service gives credit back."""
        self._take(self.channel.on_credit(self.service.credit(), now_s=0.0))

    def abandon(self, choice: int) -> None:
        """The client gives some question up."""
        if self.expected:
            question = sorted(self.expected)[choice % len(self.expected)]
            del self.expected[question]
            self._take(self.channel.abandon(QuestionId(question), now_s=0.0))

    def finish(self) -> None:
        """Everything is answered in the end."""
        while self.service.lookups or self.channel.statistics().backlog_records:
            while self.service.lookups:
                self.answer(99)
            self.credit()

    def _take(self, sent: list[Frame]) -> None:
        self.channel.check_invariants()
        unanswered = {
            key
            for question, values in self.expected.items()
            for place, key in enumerate(values)
            if place not in self.got[question]
        }
        self.service.take(sent, unanswered)


EVENTS = [Story.ask, Story.mark, Story.answer, Story.credit, Story.abandon, Story.reconnect]


@settings(max_examples=150)
@given(
    st.integers(1, 20),
    st.integers(400, 1500),
    st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 30)), max_size=25),
)
def test_every_key_is_answered_whatever_happens(
    records: int, size: int, events: list[tuple[Any, int]]
) -> None:
    """Under any credit and any losses, each question gets all its answers in their places."""
    story = Story(records, size)

    for event, number in events:
        event(story, number)
    story.finish()

    assert {question: story.got[question] for question in story.expected} == {
        question: {place: f"name {key}" for place, key in enumerate(values)}
        for question, values in story.expected.items()
    }
    assert story.channel.is_quiet


def _size(*values: int) -> int:
    return len(encode_batch(keys(*values)))


def test_closing_leaves_what_is_unanswered(channel: ClientChannel) -> None:
    """The service need not answer it any more; answers that were under way are nobody's."""
    channel.ask(asked(1, 7), now_s=0.0)
    channel.ask(asked(2, *range(200)), now_s=0.0)

    assert channel.close() == [frames.Cancel(1, 1), frames.Cancel(1, 2), frames.Close(1)]
    assert channel.on_result(result(1, missing(0))) is None
    assert channel.statistics() == ChannelStatistics(0, 0, 0, 0)
    assert channel.close() == []
    channel.check_invariants()


def test_channel_that_never_stood_closes_silently() -> None:
    """The service would not know it."""
    channel = ClientChannel(1, REQUEST)
    channel.ask(asked(1, 7), now_s=0.0)

    assert channel.close() == []
