"""One channel of the client: order, credit, replay after a connection loss, and answers."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ErrorCode, InvalidRequest, ProtocolViolation
from lookup_core.lookup_options import NO_OPTIONS, LookupOptions
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import encode_batch
from lookup_core.protocol.backlog import ChannelAnswer, ClientCredit, too_large_keys
from lookup_core.protocol.client_channel import ChannelLevels, ClientChannel
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.sent_lookups import RunId
from tests.lookup_core.protocol.channel_frames import (
    COLUMNS,
    KEY,
    REQUEST,
    fetched,
    key_values,
    missing,
    open_channel,
    opened,
    result,
    sent_keys,
    summary,
)

IDLE, ACTIVE = frames.Status(1, is_idle=True), frames.Status(1, is_idle=False)
MARK = frames.Watermark(1, 5)
NUMBERS = tuple("123456789")
OPENED_WITH_VERSIONS = frames.Opened(
    1, 1, 100_000, COLUMNS, ("id",), VersionColumns("since"), waits=True
)


@pytest.fixture
def channel() -> ClientChannel:
    """An open channel."""
    return open_channel()


def answer_of(channel: ClientChannel, frame: frames.Result) -> ChannelAnswer | None:
    """The answers of a RESULT."""
    assert channel.receive(frame, now_s=0.0) == []
    answers = channel.pop_answers()
    assert len(answers) <= 1
    return answers[0] if answers else None


def lookups(sent: list[Frame]) -> list[frames.Lookup]:
    """The LOOKUP frames among these."""
    return [frame for frame in sent if isinstance(frame, frames.Lookup)]


def test_latest_reason_explains_a_code(channel: ClientChannel) -> None:
    """The last reason of the service explains a code; without one, its general meaning does."""
    channel.receive(frames.Reason(1, "value_rejected", "column a"), now_s=0.0)
    channel.receive(frames.Reason(1, "of_tomorrow", "unknown"), now_s=0.0)
    channel.receive(frames.Reason(1, "value_rejected", "column b"), now_s=0.0)

    codes = ErrorCode.VALUE_REJECTED, ErrorCode.AMBIGUOUS
    assert [channel.explanation(code) for code in codes] == [
        "column b",
        ErrorCode.AMBIGUOUS.explanation,
    ]


def test_frames_wait_for_opened() -> None:
    """Keys and watermarks of a channel that is not open wait, and leave in their order."""
    channel = ClientChannel(1, REQUEST)

    before = [channel.open(), *channel.look_up(sent_keys(1, "7", "8"), now_s=0.0)]
    before += channel.mark(5, now_s=0.0)
    levels = channel.statistics()
    sent = channel.receive(opened(), now_s=0.0)

    assert before == [frames.Open(1, "customers", ("name",), "a test", KEY, wants_reasons=True)]
    assert levels == ChannelLevels(0, 0, 0, 2)
    assert summary(sent) == [(1, ["7", "8"]), MARK]
    assert (channel.columns, channel.key, channel.versions) == (COLUMNS, ("id",), None)


def test_ignored_options_are_refused() -> None:
    """A service that does not confirm the options of OPEN is too old: no lookup is sent."""
    options = LookupOptions(max_age_ms=0, max_retries=3, retry_delay_ms=250, retry_if="name")
    channel = ClientChannel(1, replace(REQUEST, options=options))
    channel.look_up(sent_keys(1, "7"), now_s=0.0)
    assert channel.open().options == options
    sent = channel.receive(replace(opened(), options=options), now_s=0.0)
    assert summary(sent) == [(1, ["7"])]

    channel.open()
    for echoed in (NO_OPTIONS, replace(options, max_age_ms=None)):
        with pytest.raises(InvalidRequest) as caught:
            channel.receive(replace(opened(), options=echoed), now_s=0.0)
        assert caught.value.detail == (
            "the sidecar is too old for options of lookups in 'customers': max_age, retry_missing,"
            " retry_if; upgrade the sidecar, or omit them"
        )


def test_silent_input_is_reported_once(channel: ClientChannel) -> None:
    """A silent input makes the channel idle; the next frame follows an active status."""
    sent = [channel.on_silence(now_s=0.0), channel.on_silence(now_s=1.0)]
    sent += [summary(channel.look_up(sent_keys(1, "7"), now_s=2.0)), channel.mark(5, now_s=2.0)]
    sent += [channel.on_silence(now_s=3.0), channel.mark(5, now_s=4.0)]

    assert sent == [[IDLE], [], [ACTIVE, (1, ["7"])], [MARK], [IDLE], [ACTIVE, MARK]]


def test_backlog_precedes_idle_status() -> None:
    """A channel that waits for credit becomes idle when its backlog is sent."""
    channel = open_channel(records=1)
    channel.look_up(sent_keys(1, "7", "8"), now_s=0.0)
    channel.mark(5, now_s=0.0)

    assert channel.on_silence(now_s=0.0) == []
    sent = channel.receive(frames.Credit(1, 1, 0), now_s=0.0)
    assert summary(sent) == [(2, ["8"]), MARK, IDLE]


def test_connection_starts_active(channel: ClientChannel) -> None:
    """A new connection gets the idle status again, unless the input is active by then."""
    channel.mark(5, now_s=0.0)
    channel.on_silence(now_s=0.0)

    channel.open()
    silent = [channel.on_silence(now_s=0.0), channel.receive(opened(), now_s=0.0)]
    channel.open()
    channel.mark(6, now_s=0.0)
    active = channel.receive(opened(), now_s=0.0)

    assert silent == [[], [MARK, IDLE]]
    assert active[-1] == frames.Watermark(1, 6)


@pytest.mark.parametrize(
    ("deadline_s", "now_s", "timeout_ms"),
    [(9.0, 8.9995, 1), (9.0, 50.0, 1), (9.0, 8.0, 1000), (float("inf"), 0.0, 2**32 - 1)],
)
def test_lookup_has_remaining_time(deadline_s: float, now_s: float, timeout_ms: int) -> None:
    """The remaining time is rounded up, at least 1 ms and at most what fits the field."""
    (lookup,) = lookups(
        open_channel().look_up(sent_keys(1, "1", deadline_s=deadline_s), now_s=now_s)
    )

    assert lookup.timeout_ms == timeout_ms


def test_credit_splits_a_run() -> None:
    """Keys beyond the credit wait; answers have the positions of the run."""
    channel = open_channel(records=2)

    (first,) = lookups(channel.look_up(sent_keys(1, "10", "11", "12"), now_s=0.0))
    levels = channel.statistics()
    (second,) = lookups(channel.receive(frames.Credit(1, 2, 500), now_s=0.0))
    faulty = rowless_answer(np.array([0], np.int32), Outcome.ERROR, error=ErrorCode.TYPE)
    answered = answer_of(channel, result(2, faulty))

    assert summary([first, second]) == [(1, ["10", "11"]), (2, ["12"])]
    assert (first.backlog_records, second.backlog_records) == (1, 0)
    assert levels == ChannelLevels(0, 100_000 - len(first.payload), 2, 1)
    assert answered is not None
    assert (answered.run, answered.answer.errors) == (RunId(1), {2: ErrorCode.TYPE})
    assert answered.answer.positions.tolist() == [2]


def test_answered_keys_are_not_in_flight() -> None:
    """One unanswered key does not keep returned credit from being used."""
    channel = open_channel(records=100)
    (first,) = lookups(channel.look_up(sent_keys(1, *map(str, range(100))), now_s=0.0))
    channel.look_up(sent_keys(2, *map(str, range(200))), now_s=0.0)

    answer_of(channel, result(1, fetched(dict.fromkeys(range(99), "x")), is_last=False))
    sent = lookups(channel.receive(frames.Credit(1, 99, len(first.payload)), now_s=0.0))

    assert [len(key_values(each)) for each in sent] == [99]
    assert channel.statistics().in_flight_records == 100
    channel.check_invariants()


def test_open_keys_and_watermarks_are_work() -> None:
    """Keys are work until they are answered, also without a connection; so are watermarks."""
    channel = open_channel()
    work = [channel.has_work]
    channel.look_up(sent_keys(1, "a"), now_s=0.0)
    channel.on_lost()
    work.append(channel.has_work)
    channel.abandon(RunId(1), now_s=0.0)
    work.append(channel.has_work)
    channel.mark(5, now_s=0.0)

    assert [*work, channel.has_work] == [False, True, False, True]


def test_payload_fits_byte_credit() -> None:
    """The payload of a lookup uses much of the credit in bytes and never exceeds it."""
    run = sent_keys(1, *map(str, range(1000)))
    whole = len(encode_batch(run.keys))
    channel = open_channel(records=5000, size=whole // 2)

    (lookup,) = lookups(channel.look_up(run, now_s=0.0))

    assert whole // 3 < len(lookup.payload) <= whole // 2
    channel.check_invariants()


def test_too_large_keys_are_answered() -> None:
    """A key that exceeds the exclusive credit has an error; the other keys are sent."""
    channel = ClientChannel(1, REQUEST)
    channel.open()
    channel.look_up(sent_keys(4, "a", "b" * 9000, "c"), now_s=0.0)
    refused = [channel.pop_answers()]  # the credit is not known before OPENED

    sent = channel.receive(opened(size=8000), now_s=0.0)
    refused += [channel.pop_answers(), channel.pop_answers()]
    sent += channel.look_up(sent_keys(5, "d" * 9000), now_s=0.0)
    refused += [channel.pop_answers()]

    answered = answer_of(channel, result(1, missing(1), is_last=False))
    assert summary(sent) == [(1, ["a", "c"])]
    assert answered is not None
    assert answered.answer.positions.tolist() == [2]
    assert [[(each.run, each.answer.errors) for each in found] for found in refused] == [
        *([], [(4, {1: ErrorCode.KEY_TOO_LARGE})], [], [(5, {0: ErrorCode.KEY_TOO_LARGE})])
    ]


def test_ended_lookup_releases_sliver() -> None:
    """A small rest of the credit is used when no lookup is left to wait for."""
    channel = open_channel(records=10)
    channel.look_up(sent_keys(1, *NUMBERS), now_s=0.0)
    held_back = channel.look_up(sent_keys(2, *NUMBERS), now_s=0.0)

    answer_of(channel, result(1, missing(*range(9))))

    assert (held_back, summary(channel.resume(now_s=0.0))) == ([], [(2, ["1"])])


def test_replay_sends_open_keys_only(channel: ClientChannel) -> None:
    """Answered keys are not sent again; answers to the others have their positions."""
    channel.look_up(replace(sent_keys(1, "a", "b", "c", "d", "e"), start=10), now_s=0.0)
    channel.mark(5, now_s=0.0)
    channel.look_up(sent_keys(2, "f"), now_s=0.0)
    answer_of(channel, result(1, missing(3, 0), is_last=False))
    answer_of(channel, result(2, missing(0), is_last=False))  # its last answer is empty
    in_flight = channel.statistics().in_flight_records

    channel.open()
    first = channel.receive(opened(records=2), now_s=0.0)
    late = answer_of(channel, result(3, missing(1)))
    second = channel.receive(frames.Credit(1, 9, 900), now_s=0.0)
    answer_of(channel, result(1, fetched({1: "c"}), is_last=False))
    channel.open()
    third = channel.receive(opened(), now_s=0.0)
    answered = [answer_of(channel, result(sequence, missing(0))) for sequence in (2, 1)]

    assert (in_flight, late) == (3, None)
    assert summary([*first, *second]) == [(1, ["b", "c"]), (2, ["e"]), MARK]
    assert summary(third) == [(1, ["b"]), (2, ["e"]), MARK]
    assert [each and each.answer.positions.tolist() for each in answered] == [[14], [11]]
    assert channel.is_quiet
    channel.check_invariants()


def test_abandoned_run_is_cancelled() -> None:
    """Sent keys of an abandoned run are cancelled, waiting keys dropped; the rest leaves."""
    channel = open_channel(records=2)
    channel.look_up(sent_keys(1, *NUMBERS), now_s=0.0)
    channel.mark(5, now_s=0.0)

    sent = channel.abandon(RunId(1), now_s=0.0)

    assert sent == [frames.Cancel(1, 1), MARK]
    assert (answer_of(channel, result(1, missing(0))), channel.is_quiet) == (None, True)
    channel.check_invariants()


def test_opened_behind_goaway_sends_nothing() -> None:
    """OPENED behind GOAWAY gives the columns, and no credit."""
    channel = ClientChannel(1, REQUEST)
    channel.open()
    channel.look_up(sent_keys(1, "1"), now_s=0.0)
    channel.pause()

    assert channel.receive(opened(), now_s=0.0) == []
    assert channel.columns == COLUMNS
    assert channel.statistics() == ChannelLevels(0, 0, 0, backlog_records=1)


def test_opened_without_open_is_refused() -> None:
    """OPENED without OPEN is a violation, and no lookup is sent."""
    channel = ClientChannel(1, REQUEST)
    channel.look_up(sent_keys(1, "1"), now_s=0.0)

    with pytest.raises(ProtocolViolation, match="OPENED without OPEN"):
        channel.receive(opened(), now_s=0.0)

    assert channel.resume(now_s=0.0) == []
    assert channel.opened is None


def test_paused_channel_sends_nothing(channel: ClientChannel) -> None:
    """A paused channel takes answers, queues lookups and ignores credit."""
    channel.look_up(sent_keys(1, "1"), now_s=0.0)

    channel.pause()
    sent = channel.look_up(sent_keys(2, "2"), now_s=0.0)
    sent += channel.receive(frames.Credit(1, 5, 500), now_s=0.0)
    quiet = [channel.is_quiet]
    answered = answer_of(channel, result(1, missing(0)))

    assert (sent, channel.statistics().credit_records) == ([], 0)
    assert answered is not None
    assert [*quiet, channel.is_quiet] == [False, True]


def test_close_cancels_unanswered_lookups(channel: ClientChannel) -> None:
    """Closing cancels unanswered lookups and drops the backlog; a second close sends nothing."""
    channel.look_up(sent_keys(1, "7"), now_s=0.0)
    channel.look_up(sent_keys(2, *map(str, range(200))), now_s=0.0)

    sent = [channel.close(), channel.close(), ClientChannel(1, REQUEST).close()]

    assert sent == [[frames.Cancel(1, 1), frames.Cancel(1, 2), frames.Close(1)], [], []]
    assert answer_of(channel, result(1, missing(0))) is None
    assert channel.statistics() == ChannelLevels(0, 0, 0, 0)
    channel.check_invariants()


@pytest.mark.parametrize(
    ("answers", "detail"),
    [
        ([(missing(3), False)], "distinct and below 3"),
        ([(missing(-1), True)], "distinct and below 3"),
        ([(missing(2**31 - 1), False)], "distinct and below 3"),
        ([(missing(0, 0), False)], "distinct and below 3"),
        ([(missing(1), False), (missing(0, 1), False)], "distinct and below 3"),
        ([(missing(1), False), (missing(0), True)], "the last answer leaves 1 of 3 keys"),
        ([(missing(0, 1, 2), True)], ""),
        ([(missing(2), False), (missing(), False), (missing(1, 0), False), (missing(), True)], ""),
        ([(rowless_answer(np.zeros(1, np.int32), Outcome.HIT), False)], "contradict"),
        ([(replace(fetched({0: "x"}), outcomes=missing(0).outcomes), False)], "contradict"),
    ],
)  # fmt: skip
def test_each_position_is_answered_once(
    channel: ClientChannel, answers: list[tuple[Answer, bool]], detail: str
) -> None:
    """Answers name each position of the lookup once; rows and outcomes agree."""
    channel.look_up(sent_keys(1, "1", "2", "3"), now_s=0.0)
    *first, (answer, is_last) = answers
    for part, _ in first:
        answer_of(channel, result(1, part, is_last=False))

    if not detail:
        assert answer_of(channel, result(1, answer, is_last=is_last)) is not None
        assert channel.is_quiet
    else:
        with pytest.raises(ProtocolViolation, match=detail) as caught:
            answer_of(channel, result(1, answer, is_last=is_last))
        assert caught.value.code is ErrorCode.BAD_FRAME
        left = {0, 1, 2}.difference(*(part.positions.tolist() for part, _ in first))
        assert answer_of(channel, result(1, missing(*left))) is not None


@pytest.mark.parametrize(
    "changed",
    [
        replace(OPENED_WITH_VERSIONS, columns=pa.schema({"name": pa.int32()})),
        replace(OPENED_WITH_VERSIONS, versions=None),
        replace(OPENED_WITH_VERSIONS, has_all_rows=True),
    ],
    ids=["columns", "versions", "all rows"],
)
def test_changed_schema_ends_the_channel(changed: frames.Opened) -> None:
    """A channel whose schema changes between two connections fails."""
    channel = ClientChannel(1, replace(REQUEST, is_as_of=True))
    opening = channel.open()
    channel.receive(OPENED_WITH_VERSIONS, now_s=0.0)
    channel.open()

    with pytest.raises(InvalidRequest, match="columns") as caught:
        channel.receive(changed, now_s=0.0)

    assert (caught.value.code, opening.is_as_of) == (ErrorCode.SCHEMA_CHANGED, True)


def default_message(*names: str) -> bytes:
    """The default row on the wire; more than one is a fault."""
    return bytes(encode_batch(pa.record_batch([list(names)], schema=COLUMNS)))


def test_default_row_never_changes() -> None:
    """A channel that requests the default row has it from OPENED, and fails if it changes."""
    channel = ClientChannel(1, replace(REQUEST, wants_default=True))
    opening = channel.open()
    channel.receive(replace(opened(), default=default_message("unknown")), now_s=0.0)
    channel.open()

    with pytest.raises(InvalidRequest, match="the columns, or the default row, of 'customers'"):
        channel.receive(replace(opened(), default=default_message("other")), now_s=0.0)

    assert opening.wants_default
    assert channel.default is not None
    assert channel.default.to_pydict() == {"name": ["unknown"]}


@pytest.mark.parametrize(
    ("message", "detail"),
    [
        (default_message("a", "b"), "the default row is not one row"),
        (default_message(), "the default row is not one row"),
        (b"row", "the payload is not a record batch|an Arrow message was expected"),
    ],
)
def test_default_is_one_row(message: bytes, detail: str) -> None:
    """Other bytes are a violation, also where the client did not request them."""
    channel = ClientChannel(1, replace(REQUEST, wants_default=True))
    channel.open()

    with pytest.raises(ProtocolViolation, match=detail):
        channel.receive(replace(opened(), default=message), now_s=0.0)


def test_event_time_depends_on_service() -> None:
    """A lookup carries its event time, also after a replay, where the service waits for it."""
    channel = ClientChannel(1, REQUEST)
    channel.open()
    channel.receive(OPENED_WITH_VERSIONS, now_s=0.0)
    sent = [channel.look_up(replace(sent_keys(1, "7", "8"), event_time_ms=5), now_s=0.0)]
    channel.open()
    sent += [channel.receive(OPENED_WITH_VERSIONS, now_s=0.0)]
    sent += [channel.receive(frames.Credit(1, 1, 1000), now_s=0.0)]
    channel.open()

    sent += [channel.receive(replace(OPENED_WITH_VERSIONS, waits=False), now_s=0.0)]

    times = [[lookup.event_time_ms for lookup in lookups(each)] for each in sent]
    assert (times, channel.versions) == ([[5], [5], [5], [None]], VersionColumns("since"))


@pytest.mark.parametrize(
    ("columns", "least_bytes"),
    [
        ([pa.array([7])], 400),
        ([pa.array(["abc"])], 435),
        ([pa.array([7]), pa.array(["a"])], 697),
    ],
)
@pytest.mark.parametrize("count", [1, 200])
def test_small_credit_fits_small_keys(
    columns: list[pa.Array], least_bytes: int, count: int
) -> None:
    """The least credit for a key is that of one key alone, whatever the batch is."""
    key = pa.record_batch(columns, [f"k{number}" for number in range(len(columns))])
    keys = pa.concat_batches([key] * count)

    refused = [len(too_large_keys(keys, each)) for each in (least_bytes - 1, least_bytes)]

    assert refused == [count, 0]


@pytest.mark.parametrize("kind", [pa.int64(), pa.utf8(), pa.large_utf8(), pa.binary()], ids=str)
def test_small_keys_of_large_batch_fit(kind: pa.DataType) -> None:
    """The size of each key counts, not that of the batch."""
    column = pa.array(range(10_000)).cast(pa.utf8()).cast(kind)
    large = pa.array(["a" * 5000, "b", None, "c" * 4096, "d" * 2000])

    assert not len(too_large_keys(pa.record_batch([column], ["id"]), 4096))
    assert too_large_keys(pa.record_batch([large], ["id"]), 4096).tolist() == [0, 3]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1] * 40, pa.int8()),
        pa.array([1] * 20 + [None] * 5, pa.int16()),
        pa.array([True] * 500),
        pa.array(["", "a"] * 9, pa.large_utf8()),
        pa.array([b"", b"a", None] * 9),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize("columns", [1, 2, 100])
def test_keys_beyond_credit_are_found(column: pa.Array, columns: int) -> None:
    """A key that alone does not fit the credit is always found."""
    keys = pa.record_batch([column] * columns, [f"k{number}" for number in range(columns)])

    for place in (0, 1, len(keys) - 1):
        alone = keys.slice(place, 1)
        size = len(encode_batch(alone))
        assert place in too_large_keys(keys, size - 1)
        assert too_large_keys(alone, size - 1).tolist() == [0]


def test_bytes_limit_the_records() -> None:
    """Too many bytes reduce the records in proportion, to one at least; large keys wait."""
    credit = ClientCredit()
    credit.restart(100, 1000)
    sizes = [(50, 2000), (50, 1001), (2, 900_000)]
    within = [credit.records_within(count, size, in_flight=0) for count, size in sizes]
    credit.spend(1, 300)
    within += [credit.records_within(1, 900, in_flight=300)]
    credit.spend(1, 500)
    within += [credit.records_within(50, 2000, in_flight=800)]

    assert within == [25, 49, 1, 0, 0]


def test_size_of_lookup_is_bounded() -> None:
    """A lookup has at most 1 MiB, whatever the credit is."""
    credit = ClientCredit()
    credit.restart(10**6, 10 * 2**20)

    assert credit.lookup_bytes == 2**20
    assert credit.records_within(1000, 4 * 2**20, in_flight=0) == 250


def test_shared_lookups_are_reported_while_open() -> None:
    """Lookups in shared memory are reported on an open channel only, and use no credit."""
    cached = frames.Cached(1, 3, 2, 1, b"")
    channel = open_channel(records=0)
    sent = [channel.report_cached(cached)]
    channel.on_lost()
    sent.append(channel.report_cached(cached))

    assert sent == [[cached], []]
