"""Stream servers of one process: frames in, frames, parts and effects out."""

import weakref
from collections.abc import Callable

import numpy as np
import pytest

from lookup_core.answer import Outcome
from lookup_core.errors import BackendError, ErrorCode, ProtocolViolation
from lookup_core.event_time.record_watermarks import MAX_WATERMARK_MS
from lookup_core.protocol import frames
from lookup_core.protocol.channel_registry import (
    ENDED_STREAM_KEPT_S,
    FIRST_WATERMARK_S,
    SILENT_S,
    EndedStream,
)
from lookup_core.protocol.credit_ledger import RECORD_BYTES, Grant
from lookup_core.protocol.frame_codec import encode_frame
from lookup_core.protocol.frames import MAX_CHANNELS, Frame
from lookup_core.protocol.lookup_turns import PART_ANSWER_BYTES
from lookup_core.protocol.server_channel import ChannelSchema, ChannelStatistics
from lookup_core.protocol.stream_effects import CountCached, Describe, Leave, Offer, StopDescribing
from lookup_core.protocol.stream_server import MAX_QUEUED_FRAMES, RESULT_ROW_BYTES
from tests.lookup_core.protocol.channel_frames import fetched
from tests.lookup_core.protocol.stream_lines import (
    DESCRIBED,
    MIB,
    POOL_BYTES,
    Line,
    StreamService,
    lookup,
    opening,
)

SHARE = Grant(12 * 1024 // RECORD_BYTES, 12 * 1024)  # of every channel in a pool of POOL_BYTES
GREEDY = 10**6  # a backlog that wants all floating credit


@pytest.fixture
def service() -> StreamService:
    """A service with ten channels at most."""
    return StreamService()


@pytest.fixture
def line() -> Line:
    """A connection with channel 1 open, which has no credit but its share."""
    return StreamService(pool_bytes=POOL_BYTES, channels=1).opened()


def kinds(received: list[Frame]) -> list[object]:
    """Results as (sequence, last), credit as records, other frames as they are."""
    words: list[object] = []
    for frame in received:
        match frame:
            case frames.Result():
                words.append((frame.sequence, frame.is_last))
            case frames.Credit():
                words.append(frame.records)
            case _:
                words.append(frame)
    return words


def credit(line: Line) -> list[frames.Credit]:
    """The credit that the server sends now."""
    return [frame for frame in line.received() if isinstance(frame, frames.Credit)]


# Credit


def test_lookup_uses_credit(line: Line) -> None:
    """A lookup uses credit until it is answered; statistics show all levels."""
    line.look_up(1, 4)

    assert line.received() == []
    assert line.statistics() == ChannelStatistics(
        connection=1,
        channel=1,
        dimension="customers",
        origin="task 7",
        exclusive_records=SHARE.records,
        floating_records=0,
        credit_records=SHARE.records - 4,
        backlog_records=0,
        in_flight_records=4,
        watermark_ms=None,
        is_idle=False,
    )


def key_bytes(count: int, payload_bytes: int) -> int:
    """The size of the only large key, so that `count` keys have this payload."""
    least = len(lookup(1, *["k"] * count).payload)
    return 1 + payload_bytes - least


@pytest.mark.parametrize(
    ("count", "too_many_bytes", "code"),
    [
        (SHARE.records - 1, 0, None),
        (SHARE.records, 0, ErrorCode.CREDIT_VIOLATION),
        (1, 8, ErrorCode.CREDIT_VIOLATION),  # batches are padded
    ],
)
def test_all_credit_may_be_used(
    line: Line, count: int, too_many_bytes: int, code: ErrorCode | None
) -> None:
    """A lookup may use all records and all bytes; beyond, it is refused and changes nothing."""
    used = line.look_up(1, 1)
    before = line.statistics()
    left_bytes = SHARE.bytes - used.bytes + too_many_bytes
    large = "k" * key_bytes(count, left_bytes - left_bytes % 8)
    frame = lookup(2, large, *["k"] * (count - 1))

    if code is None:
        line.send(frame)
        assert line.statistics().credit_records == 0
        line.service.check()
        return
    with pytest.raises(ProtocolViolation) as caught:
        line.send(frame)
    assert (caught.value.code, line.statistics()) == (code, before)
    line.service.check()


@pytest.mark.parametrize("sequence", [0, 1, 3])
def test_sequences_have_no_gap(line: Line, sequence: int) -> None:
    """A lookup out of sequence is refused and changes nothing."""
    line.look_up(1, 1)
    before = line.statistics()

    with pytest.raises(ProtocolViolation) as caught:
        line.send(lookup(sequence, "a"))

    assert (caught.value.code, line.statistics()) == (ErrorCode.SEQUENCE_GAP, before)


def test_credit_returns_when_it_is_sent(line: Line) -> None:
    """The end of a lookup returns its cost; the client may use it once it is sent."""
    cost = line.look_up(1, SHARE.records)
    line.answer()
    with pytest.raises(ProtocolViolation) as caught:
        line.look_up(2, 1)

    assert line.next_frame() == frames.Credit(1, cost.records, cost.bytes)
    line.look_up(2, SHARE.records)
    assert caught.value.code is ErrorCode.CREDIT_VIOLATION


def test_answered_keys_return_their_credit(line: Line) -> None:
    """Each answer returns its records, and bytes in proportion; the last one the rest."""
    cost = line.look_up(1, 7)

    line.answer(*range(6))
    first = line.received()
    left = line.statistics().in_flight_records
    line.answer(6)
    rest = line.received()

    part_bytes = cost.bytes * 6 // 7
    assert kinds(first) == [6, (1, False)]
    assert first[0] == frames.Credit(1, 6, part_bytes)
    assert (left, rest[0]) == (1, frames.Credit(1, 1, cost.bytes - part_bytes))
    assert line.statistics().credit_records == SHARE.records
    line.service.check()


def test_lookup_without_keys_is_answered(line: Line) -> None:
    """An empty lookup gets an empty last RESULT and its bytes back."""
    cost = line.look_up(1, 0)

    back, last = line.received()
    assert back == frames.Credit(1, 0, cost.bytes)
    assert kinds([last]) == [(1, True)]
    assert line.parts == []


def test_backlog_gets_floating_credit(service: StreamService) -> None:
    """A backlog gets credit beyond the rest of the share, once, by the mean size of its keys."""
    line = service.opened()

    cost = line.look_up(1, 10, size=800, backlog=100)
    line.look_up(2, 1, size=800, backlog=99)
    lent, more = credit(line)  # the second key alone takes more bytes
    statistics = line.statistics()

    left = SHARE.minus(Grant(10, cost.bytes))
    record_bytes = -(-cost.bytes // 10) + 16  # the mean of its records, and headroom
    assert lent == frames.Credit(1, 100 - left.records, 100 * record_bytes - left.bytes)
    assert (statistics.backlog_records, statistics.floating_records) == (99, 100 - left.records)
    assert (more.records, statistics.credit_records) == (0, 99)


def test_contended_credit_goes_to_pool(service: StreamService) -> None:
    """Credit that other channels need does not return to the channel that used it."""
    greedy, late = service.opened(), service.opened()
    greedy.look_up(1, 40, size=50, backlog=GREEDY)
    credit(greedy)
    cost = greedy.look_up(2, 200, size=50, backlog=GREEDY)
    credit(greedy)
    floating = greedy.statistics().floating_records
    late.look_up(1, 1, backlog=GREEDY)

    greedy.answer(part=1)
    (back,) = credit(greedy)

    assert 0 < back.records < cost.records
    assert greedy.statistics().floating_records == floating - (cost.records - back.records)
    service.check()


def test_empty_credit_closes_the_channel(service: StreamService) -> None:
    """A part whose credit goes to others sends none; the end of a lookup always does."""
    greedy, late = service.opened(), service.opened()
    greedy.look_up(1, 2, backlog=GREEDY)
    greedy.received()
    late.look_up(1, 1, backlog=GREEDY)
    greedy.answer(0)
    first = greedy.received()
    greedy.send(frames.Close(1))
    greedy.answer(1)

    assert kinds(first) == [(1, False)]
    assert kinds(greedy.received()) == [0, (1, True), frames.Closed(1)]


# The order of frames


def test_credit_precedes_the_answer(service: StreamService) -> None:
    """Frames are sent in order; reasons precede an answer, and its credit the last piece."""
    line = service.opened()
    line.look_up(1, 2)
    line.look_up(2, 2)
    line.server.go_away("draining")
    line.answer(0, names="x" * RESULT_ROW_BYTES, part=1, reason="column a")
    line.answer(1, part=1, reason="column a")
    line.answer(0, 1, reason="column b")

    reason = "value_rejected"
    assert kinds(line.received()) == [
        frames.Goaway("draining"),
        *(frames.Reason(1, reason, "column a"), 1, (2, False)),
        *(1, (2, True)),
        *(frames.Reason(1, reason, "column b"), 2, (1, True)),
    ]


def test_large_answer_is_several_frames(service: StreamService) -> None:
    """A RESULT has about 1 MiB of rows; bytes are held until the last one is sent."""
    line = service.opened()
    line.look_up(1, 4)
    line.answer(names="x" * (RESULT_ROW_BYTES // 2))

    found, used = [], []
    while (message := line.server.message_to_send(service.now)) is not None:
        used.append(service.used_bytes)
        found.append(message[0])
    used.append(service.used_bytes)

    assert found == [68, 68, 68, 67, 68]
    assert [each > 0 for each in used] == [True] * 5 + [False]
    assert line.server.is_idle


def test_sent_answers_are_not_kept(service: StreamService) -> None:
    """An answer is referenced until it is sent; the server is idle then, and not before."""
    line = service.opened()
    line.look_up(1, 1)
    answer = fetched({0: "x"})
    kept = weakref.ref(answer.positions)
    line.server.on_answer(line.parts[0], answer, service.now, reasons={})
    del answer
    levels = [(line.server.has_messages, line.server.is_idle)]
    for _ in range(2):
        line.server.message_to_send(service.now)
    levels.append((line.server.has_messages, line.server.is_idle))

    assert line.server.message_to_send(service.now) is None
    assert (kept(), line.server.is_idle) == (None, True)
    assert levels == [(True, False), (False, False)]


def test_unread_frames_are_bounded(service: StreamService) -> None:
    """With more than 1,024 frames the connection is not read until some have left."""
    line = service.connect()
    for number in range(MAX_QUEUED_FRAMES):
        line.server.go_away(str(number))
    levels = [line.server.has_room]
    line.server.go_away("one more")
    levels.append(line.server.has_room)
    line.next_frame()

    assert [*levels, line.server.has_room] == [True, False, True]


# Opening and closing


def test_channel_drains_after_close(line: Line) -> None:
    """After CLOSE a channel takes no lookup, and ends when its last answer is sent."""
    line.look_up(1, 1, backlog=5)
    line.send(frames.Close(1), frames.Close(1))
    with pytest.raises(ProtocolViolation, match="LOOKUP after CLOSE on 1") as caught:
        line.look_up(2, 1)
    closing = [line.statistics().backlog_records, line.received()]
    line.answer()
    ended = [line.next_frame() for _ in range(3)]

    assert caught.value.code is ErrorCode.UNKNOWN_CHANNEL
    assert (closing, kinds(ended)) == ([0, []], [1, (1, True), frames.Closed(1)])
    assert line.service.registry.statistics() == []


@pytest.mark.parametrize(
    "frame", [frames.Watermark(1, 5), frames.Status(1, is_idle=True)], ids=["mark", "status"]
)
def test_event_time_does_not_follow_close(line: Line, frame: Frame) -> None:
    """A closing channel takes no event time."""
    line.look_up(1, 1)
    line.send(frames.Close(1))

    with pytest.raises(ProtocolViolation, match="after CLOSE on 1"):
        line.send(frame)


def test_channel_may_close_before_it_is_open(service: StreamService) -> None:
    """The description of a closed channel is stopped; a late one opens nothing."""
    line, request = service.connect(), opening()
    effects = [
        *line.server.receive(encode_frame(request), 0.0),
        *line.server.receive(encode_frame(frames.Close(1)), 0.0),
    ]
    assert isinstance(effects[0], Describe)
    requested = effects[0].requested
    line.server.accept(requested, Offer(ChannelSchema(requested, DESCRIBED)), 0.0)
    line.server.refuse(requested, BackendError(ErrorCode.FORBIDDEN, "no"))

    assert effects == [Describe(request), StopDescribing(1)]
    assert line.received() == [frames.Closed(1)]
    assert line.open(1).channel == 1


def test_long_errors_are_cut(service: StreamService) -> None:
    """An ERROR that quotes a large request stays within the limit of a description."""
    line, request = service.connect(), opening()
    line.server.receive(encode_frame(request), 0.0)
    line.server.refuse(request, BackendError(ErrorCode.FORBIDDEN, "\N{OWL}" * 30_000))

    assert line.received() == [
        frames.Failure(1, ErrorCode.FORBIDDEN, "\N{OWL}" * 5_000, is_retryable=False)
    ]


def test_channels_of_a_connection_are_bounded(service: StreamService) -> None:
    """A connection may have 64 channels, those being opened included; the next one is refused."""
    line = service.opened()
    for number in range(2, MAX_CHANNELS + 1):
        line.server.receive(encode_frame(opening(number)), 0.0)
    line.send(opening(MAX_CHANNELS + 1))

    assert line.received() == [
        frames.Failure(
            MAX_CHANNELS + 1,
            ErrorCode.OVERLOADED,
            'dimension "customers": its connection has 64 channels, the limit; use another'
            " connection",
            is_retryable=True,
        )
    ]
    line.look_up(1, 1)


def test_reopened_channel_outlives_closed(service: StreamService) -> None:
    """CLOSED of a channel that was never open does not end the next one of its number."""
    line = service.connect()
    line.server.receive(encode_frame(opening()), 0.0)
    line.server.receive(encode_frame(frames.Close(1)), 0.0)
    line.send(opening())

    assert [type(frame) for frame in line.received()] == [frames.Closed, frames.Opened]
    assert line.statistics().channel == 1


def test_silent_channel_makes_room() -> None:
    """A new channel gets the share of the longest silent one, whose frames are ignored then."""
    service = StreamService(channels=2)
    first, second = service.opened(), service.opened()
    service.now += 1
    second.send(frames.Cached(1, 1, 0, 0, b""))
    service.now += SILENT_S
    third = service.opened()
    service.check()

    assert isinstance(ended := first.receive(frames.Failure), frames.Failure)
    assert (ended.channel, ended.code, ended.is_retryable) == (1, ErrorCode.OVERLOADED, True)
    first.send(lookup(1, "a"), frames.Watermark(1, 5), frames.Status(1, is_idle=True))
    first.send(frames.Cancel(1, 1), opening())
    assert first.receive(frames.Opened).channel == 1
    assert [each.connection for each in service.registry.statistics()] == [3, 1]
    assert third.received() == []


def refusal(service: StreamService) -> str:
    """Why another channel is refused."""
    line = service.connect()
    line.send(opening())
    failure = line.receive(frames.Failure)
    assert (failure.code, failure.is_retryable) == (ErrorCode.OVERLOADED, True)
    return failure.detail


@pytest.mark.parametrize(
    ("service", "limit"),
    [
        (StreamService(channels=2), "which is the limit, {}; raise limits.channels"),
        (
            StreamService(channels=3, pool_bytes=96 * 1024),
            "which use all memory for lookups, {}; raise limits.memory",
        ),
    ],
    ids=["channels", "memory"],
)
def test_refusal_names_the_limit(service: StreamService, limit: str) -> None:
    """While no channel is silent, the error names the limit that is reached."""
    for _ in range(2):
        service.opened()

    expected = "2 channels are open, " + limit.format("and none has been silent for 10 s")
    assert refusal(service) == expected
    service.registry.allow_growth(is_allowed=False)
    assert refusal(service) == "memory is used up; raise limits.memory"
    service.registry.allow_growth(is_allowed=True)
    service.now += SILENT_S
    assert service.opened().statistics().channel == 1


@pytest.mark.parametrize(
    "use", ["lookup", "unsent credit", "closing", "recent"], ids=lambda use: use
)
def test_used_channel_keeps_its_share(use: str) -> None:
    """A channel is not silent with a lookup, unsent credit or CLOSE, or within ten seconds."""
    service = StreamService(channels=1)
    line = service.opened()
    if use != "recent":
        line.look_up(1, 1)
    if use == "closing":
        line.send(frames.Close(1))
    if use == "unsent credit":
        line.answer()
    service.now += SILENT_S - (0.001 if use == "recent" else -1)

    assert [refusal(service)[:22] for _ in range(2)] == ["1 channels are open, w"] * 2
    service.now += 0.001
    if use == "recent":
        assert service.opened().statistics().channel == 1


def test_few_revoked_channels_are_remembered() -> None:
    """Frames of a forgotten revoked channel are a violation."""
    service = StreamService(channels=1)
    line = service.connect()
    for number in range(1, 1_027):
        line.send(opening(number))
        service.now += SILENT_S
    line.received()

    line.send(lookup(1, "a", channel=2))
    with pytest.raises(ProtocolViolation, match="channel 1 is not open"):
        line.send(lookup(1, "a", channel=1))


def test_lost_connection_leaves_nothing(service: StreamService) -> None:
    """The end of a connection leaves its lookups, and returns all credit and bytes."""
    line, other = service.opened(), service.opened()
    line.look_up(1, 3)
    line.look_up(2, 2)
    other.look_up(1, 1)
    line.answer(0)
    line.next_frame()

    line.close()

    left = [each for each in line.effects if isinstance(each, Leave)]
    assert [(each.lookup.sequence, len(each.parts), each.timed_out) for each in left] == [
        *((1, 1, 0), (2, 1, 0))
    ]
    assert [each.connection for each in service.registry.statistics()] == [2]
    assert service.used_bytes == 100
    service.registry.check_invariants()


# Cancel and timeout


@pytest.mark.parametrize(
    ("timeout_s", "left_s", "timed_out"),
    [(10.0, 0.3, 0), (10.0, 0.25, 2), (10.0, -0.1, 2), (0.2, 0.03, 0), (0.2, 0.01, 2)],
)
def test_cancel_at_the_deadline_is_a_timeout(
    service: StreamService, timeout_s: float, left_s: float, timed_out: int
) -> None:
    """A client cancels when its time is over: up to a tenth of it, or 250 ms, before ours is."""
    line = service.opened()
    line.send(lookup(1, "a", "b", "c", timeout_ms=int(timeout_s * 1000)))
    line.answer(0)
    line.received()
    service.now += timeout_s - left_s

    line.send(frames.Cancel(1, 1), frames.Cancel(1, 1), frames.Cancel(9, 1))

    (left,) = line.effects
    assert isinstance(left, Leave)
    assert (len(left.parts), left.timed_out) == (1, timed_out)
    assert kinds(line.received()) == [2]
    assert service.used_bytes == 0
    line.look_up(2, 1)


def test_queued_records_time_out() -> None:
    """At the deadline, queued records are answered with `timeout`; others may still come."""
    service = StreamService(answer_bytes=1, guess_bytes=1)
    line = service.opened()
    line.send(lookup(1, "a", "b", "c", timeout_ms=500))
    service.now += 0.499
    service.time_out()
    before = line.received()
    service.now += 0.001
    service.time_out()
    timed_out = line.received()
    line.answer(0)

    assert (before, kinds(timed_out), kinds(line.received())) == (
        *([], [2, (1, False)]),
        [1, (1, True)],
    )
    assert (len(service.registry.turns), service.registry.turns.deadlines.earliest()) == (0, None)


# Turns


def rich(service: StreamService) -> Line:
    """A connection with channel 1 open, and much credit; its next sequence is 2."""
    line = service.opened()
    line.look_up(1, 1, backlog=GREEDY)
    line.answer()
    line.received()
    return line


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([[1200]], [(1, 0, 1200)]),
        ([[1201]], [(1, 0, 800), (1, 800, 401)]),
        (
            [[3200], [800, 800]],
            [
                *[(1, 0, 800), (1, 800, 800), (2, 0, 800)],
                *[(1, 1600, 800), (2, 0, 800), (1, 2400, 800)],
            ],
        ),
        (
            [[1201, 400, 400], [1]],
            [(1, 0, 800), (1, 800, 401), (1, 0, 400), (2, 0, 1), (1, 0, 400)],
        ),
    ],
    ids=["end of lookup", "large lookup", "two channels", "small lookups"],
)
def test_channels_take_turns(sizes: list[list[int]], parts: list[tuple[int, int, int]]) -> None:
    """A turn has 800 records of any lookups, or half as many more if one ends with it."""
    service = StreamService(pool_bytes=1000 * MIB, guess_bytes=1)
    lines = [rich(service) for _ in sizes]
    for line, counts in zip(lines, sizes, strict=True):
        for sequence, count in enumerate(counts, 2):
            line.look_up(sequence, count)
    at_once = [
        (line.server.number, part.start, part.unanswered) for line in lines for part in line.parts
    ]

    assert [*at_once, *service.all_parts()] == parts
    assert (service.registry.turns.is_due, service.next_part()) == (False, None)


def test_first_lookup_needs_no_turn() -> None:
    """A part of a lookup is submitted on arrival if no other one is queued."""
    service = StreamService(pool_bytes=1000 * MIB, guess_bytes=1)
    line, other = rich(service), rich(service)
    turns = service.registry.turns
    due: list[tuple[int, bool]] = []
    for sender, count in ((line, 10), (line, 1300), (other, 1)):
        sender.look_up(2 if sender is other or not due else 3, count)
        due.append((len(turns), turns.is_due))

    assert [part.unanswered for part in line.parts] == [10, 800]
    assert (due, other.parts) == ([(0, False), (1, True), (2, True)], [])


@pytest.fixture
def crowded() -> tuple[StreamService, Line, Line, Line]:
    """Two connections that wait for the bytes that a third one does not read."""
    service = StreamService(answer_bytes=1000, guess_bytes=10)
    unread, first, second = (service.opened() for _ in range(3))
    unread.look_up(1, 1)
    unread.answer(names="x" * 10_000)
    for line in (first, second):
        line.look_up(1, 5)
    assert service.all_parts() == [(3, 0, 1)]
    return service, unread, first, second


Crowded = tuple[StreamService, Line, Line, Line]


def test_channel_without_room_waits(crowded: Crowded) -> None:
    """One record always fits; the others wait until bytes are released, in their order."""
    service, unread, first, second = crowded
    first.look_up(2, 2)
    before = [service.next_part(), len(service.registry.turns), service.registry.turns.is_due]
    unread.received()
    resumed = service.registry.turns.is_due
    second.look_up(2, 1)
    parts = service.all_parts()

    assert (before, resumed) == ([None, 3, False], True)
    assert [len(line.parts) for line in (first, second)] == [3, 3]
    assert parts == [(2, 1, 4), (2, 0, 2), (3, 1, 4), (3, 0, 1)]


@pytest.mark.parametrize("ending", ["cancel", "loss", "answer"])
def test_released_bytes_resume_lookups(crowded: Crowded, ending: str) -> None:
    """A cancel, a lost connection and a small answer make room."""
    service, unread, first, second = crowded
    if ending == "answer":
        second.answer(names="")
    elif ending == "loss":
        unread.close()
    else:
        first.send(frames.Cancel(1, 1))
    service.check()

    assert service.registry.turns.is_due
    assert len(service.registry.turns) == (1 if ending == "cancel" else 2)


def test_earlier_deadline_wakes_the_turns(crowded: Crowded) -> None:
    """A lookup of a waiting channel is reported, because its deadline may be the first."""
    service, _, first, _ = crowded
    before = service.registry.turns.is_due, service.registry.turns.deadlines.earliest()
    first.send(lookup(2, "a", timeout_ms=100))

    assert before == (False, service.now + 10)
    assert service.registry.turns.is_due
    assert service.registry.turns.deadlines.earliest() == service.now + 0.1


def test_parts_are_bounded_in_bytes() -> None:
    """A part has at most 4 MiB by the estimate, and at least one record."""
    service = StreamService(guess_bytes=MIB)
    line = service.opened()
    line.look_up(1, 9)
    line.answer(names="x" * 2 * PART_ANSWER_BYTES)
    line.received()

    assert service.next_part() == (1, 4, 1)


def test_channel_starts_with_known_costs() -> None:
    """A channel starts with the costs of the dimension's newest channel, and learns alone."""
    service = StreamService(guess_bytes=MIB)
    first = service.opened()
    first.look_up(1, 1)
    first.answer()
    second, other = service.opened(), service.opened(dimension="orders")
    for line in (second, other):
        line.look_up(1, 9)
    second.answer(names="x" * 9_000_000)
    second.received()
    for line in (first, second):
        line.look_up(2, 5)
    service.all_parts()

    assert [sum(part.unanswered for part in each.parts[-1:]) for each in (first, other)] == [5, 1]
    sizes = [part.record_bytes for part in (first.parts[-1], second.parts[-1])]
    assert sizes[0] < 1000 < sizes[1]


# Event time and figures of streams

Event = Callable[[StreamService], None]
Course = list[tuple[Event, int | None]]


def mark(connection: int, watermark_ms: int) -> Event:
    """A watermark of a channel."""
    return lambda service: service.lines[connection].send(frames.Watermark(1, watermark_ms))


def status(connection: int, *, is_idle: bool) -> Event:
    """A channel becomes idle or active."""
    return lambda service: service.lines[connection].send(frames.Status(1, is_idle))


def add(dimension: str = "customers") -> Event:
    """A channel is opened, on the next connection."""

    def connect(service: StreamService) -> None:
        service.opened(dimension=dimension)

    return connect


def drop(connection: int) -> Event:
    """A channel is gone with its connection."""
    return lambda service: service.lines[connection].close()


def wait(seconds: float) -> Event:
    """Time passes."""

    def put_forward(service: StreamService) -> None:
        service.now += seconds

    return put_forward


COURSES: dict[str, Course] = {  # each begins with the open channels of connections 1 and 2
    "least of all channels": [(mark(1, 2_000), None), (mark(2, 1_000), 1_000)],
    "idle channel does not count until it has caught up": [
        (mark(1, 2_000), None),
        (mark(2, 1_000), 1_000),
        (status(2, is_idle=True), 2_000),
        (status(2, is_idle=False), 2_000),
        (mark(2, 1_500), 2_000),
        (mark(1, 3_000), 3_000),
    ],
    "channel without a watermark is passed over": [
        (mark(1, 2_000), None),
        (wait(FIRST_WATERMARK_S - 0.001), None),
        (wait(0.001), 2_000),
    ],
    "late first watermark counts": [
        (mark(1, 2_000), None),
        (wait(FIRST_WATERMARK_S), 2_000),
        (mark(2, 2_500), 2_000),
        (mark(1, 3_000), 2_500),
    ],
    "idle state is kept while passed over": [
        (mark(1, 2_000), None),
        (wait(FIRST_WATERMARK_S), 2_000),
        (status(2, is_idle=True), 2_000),
        (mark(2, 2_500), 2_000),
        (mark(1, 3_000), 3_000),
    ],
    "maximal watermark ends a channel and is no time": [
        (mark(1, 2_000), None),
        (mark(2, 1_000), 1_000),
        (mark(2, MAX_WATERMARK_MS), 2_000),
        (mark(2, 2_100), 2_000),
        (mark(1, 3_000), 3_000),
        (mark(1, MAX_WATERMARK_MS), 3_000),
    ],
    "closed channel does not count": [
        (mark(1, 2_000), None),
        (mark(2, 1_000), 1_000),
        (drop(2), 2_000),
    ],
    "new channel over older data takes nothing back": [
        (mark(1, 2_000), None),
        (drop(2), 2_000),
        (add(), 2_000),
        (mark(3, 10), 2_000),
    ],
    "last figure stays until the next channels have one": [
        (mark(1, 2_000), None),
        (drop(2), 2_000),
        (drop(1), 2_000),
        (add(), 2_000),
        (mark(3, 10), 10),
    ],
    "other dimensions do not count": [
        (mark(1, 2_000), None),
        (add("planes"), None),
        (mark(3, 5), None),
        (mark(2, 1_000), 1_000),
    ],
}


@pytest.mark.parametrize("course", COURSES.values(), ids=list(COURSES))
def test_watermark_follows_the_channels(service: StreamService, course: Course) -> None:
    """After each event the watermark is the least of the channels in the valve."""
    for _ in range(2):
        service.opened()

    shown = []
    for event, _ in course:
        event(service)
        service.registry.check_invariants()
        shown.append(service.registry.watermarks_ms(service.now).get("customers"))

    assert shown == [expected for _, expected in course]


def test_ended_channels_take_no_memory(service: StreamService) -> None:
    """Hundreds of channels come and go next to one that stays."""
    service.opened().send(frames.Watermark(1, 2_000))
    line = service.connect()
    for number in range(1, 500):
        line.open(number)
        line.send(frames.Watermark(number, 2_000 + number), frames.Close(number))
        line.received()

    service.check()
    assert len(service.registry.statistics()) == 1


def stream(service: StreamService, *keys: int, dimension: str = "customers") -> None:
    """Channels with lookups of these numbers of keys, all open at once, end."""
    lines = [service.opened(dimension=dimension) for _ in keys]
    for line, count in zip(lines, keys, strict=True):
        if count:
            line.look_up(1, count)
        line.close()


def ended(service: StreamService) -> list[tuple[str, int, int, float]]:
    """Dimension, channels, keys and age of the ended streams."""
    found = service.registry.ended_streams(service.now)
    return [(each.dimension, each.channels, each.keys, each.ended_ago_s) for each in found]


def test_ended_stream_is_remembered_for_a_minute(service: StreamService) -> None:
    """It has the channels and keys of its stream, its origin and the dimension's watermark."""
    line = service.opened()
    line.send(frames.Watermark(1, 99))
    line.look_up(1, 3)
    line.send(frames.Cached(1, 1, 2, 1, b""))
    line.close()
    service.now += 2
    stream(service, 5, 0, dimension="airports")
    service.now += 2

    assert service.registry.ended_streams(service.now) == [
        EndedStream("airports", "task 7", 1, 5, None, 2.0),
        EndedStream("customers", "task 7", 1, 7, 99, 4.0),
    ]
    service.now += ENDED_STREAM_KEPT_S - 4
    assert len(ended(service)) == 2
    service.now += 2
    assert ended(service) == [("airports", 1, 5, ENDED_STREAM_KEPT_S)]


def test_streams_within_a_minute_add_up(service: StreamService) -> None:
    """Micro-batches are one stream, which has not ended while a channel is open."""
    stream(service, 3)
    service.now += ENDED_STREAM_KEPT_S
    open_line = service.opened()
    assert ended(service) == []

    open_line.look_up(1, 8)
    open_line.close()
    assert ended(service) == [("customers", 2, 11, 0.0)]
    stream(service, 0)  # a driver that only describes a dimension
    assert ended(service) == [("customers", 2, 11, 0.0)]
    service.now += ENDED_STREAM_KEPT_S + 1
    stream(service, 4)
    assert ended(service) == [("customers", 1, 4, 0.0)]


def test_shared_lookups_are_counted(service: StreamService) -> None:
    """Keys that the client looked up in shared memory are reported, and use no credit."""
    line = service.opened()
    line.send(frames.Cached(1, 1, 3, 1, b"\x05\0\0\0"), frames.Cached(9, 1, 0, 0, b""))

    (counted,) = line.effects
    assert isinstance(counted, CountCached)
    outcomes = {Outcome.HIT: 1, Outcome.MISSING: 3, Outcome.DEFAULT: 1}
    assert (counted.dimension, counted.outcomes) == ("customers", outcomes)
    assert np.array_equal(counted.visited, [5])
    statistics = line.statistics()
    assert (statistics.shared_keys, statistics.in_flight_records) == (5, 0)
