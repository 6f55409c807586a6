"""Reading a source with splits: readers, buffers, faults, watermarks and drift."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS
from lookup_core.sources.splits import ReadingMode, SplitProgress, SplitState
from service.connectors.ports.source import SplitPiece
from service.engine.source_coordinator import CoordinatorSettings, SourceCoordinator
from service.engine.split_reading import SplitBuffer
from tests.service.connectors.fake_source import FakeSource
from tests.service.engine.refreshing import at_time
from tests.service.engine.running import PATIENCE_S, SCHEMA

CHANGE = TableChange("truncated")
DOWN = BackendError(ErrorCode.CONNECTION_LOST, "down")
FORBIDDEN = BackendError(ErrorCode.FORBIDDEN, "no right to read")
SEQUENTIAL, MULTIPLEXED, PARALLEL = (
    ReadingMode.SEQUENTIAL,
    ReadingMode.MULTIPLEXED,
    ReadingMode.PARALLEL,
)


def pieces(count: int, *, nbytes: int = 0) -> list[SplitPiece]:
    """Pieces with changes of this size."""
    return [SplitPiece("", 0, changes=[CHANGE] * (nbytes // CHANGE.nbytes))] * count


@dataclass(slots=True)
class Reading:
    """A coordinator of a source, and the pieces that it took."""

    source: FakeSource
    settings: CoordinatorSettings = field(default_factory=lambda: CoordinatorSettings("planes"))
    taken: list[SplitPiece] = field(default_factory=list)
    on_take: Callable[[SplitPiece], None] = lambda _: None
    hand_s: float | None = None  # what the clock shows; None: the time of the loop
    coordinator: SourceCoordinator = field(init=False)

    def __post_init__(self) -> None:
        """Make the coordinator."""
        self.coordinator = SourceCoordinator(
            self.source, SCHEMA, take=self._take, settings=self.settings, clock=self._clock
        )

    def positions(self, split_id: str) -> list[int]:
        """The positions of the pieces of a split; one that is repeated in order counts once."""
        taken = [piece.position for piece in self.taken if piece.split_id == split_id]
        return sorted(set(taken)) if taken == sorted(taken) else taken

    async def run(self) -> None:
        """Run to the end, and leave no task behind."""
        before = asyncio.all_tasks()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self.coordinator.run()
        finally:
            assert asyncio.all_tasks() == before
            assert self.source.open_readers == 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[SourceCoordinator]:
        """Run until the block ends, and leave no task behind."""
        before = asyncio.all_tasks()
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(PATIENCE_S):
            task = tasks.create_task(self.coordinator.run())
            yield self.coordinator
            task.cancel()
        assert asyncio.all_tasks() == before
        assert self.source.open_readers == 0

    def _take(self, piece: SplitPiece) -> None:
        self.on_take(piece)
        self.taken.append(piece)

    def _clock(self) -> float:
        return asyncio.get_running_loop().time() if self.hand_s is None else self.hand_s


def bounded(*split_ids: str, mode: ReadingMode = MULTIPLEXED) -> FakeSource:
    """A bounded source of splits with three pieces each."""
    source = FakeSource(is_bounded=True, reading_mode=mode)
    for split_id in split_ids:
        source.add(split_id, *pieces(3))
    return source


def unbounded(*split_ids: str, mode: ReadingMode = MULTIPLEXED) -> FakeSource:
    """An unbounded source of splits without pieces, in which new splits are found at once."""
    source = FakeSource(
        is_bounded=False, reading_mode=mode, discovery_interval_s=0.001, patience_s=0.001
    )
    for split_id in split_ids:
        source.add(split_id)
    return source


def whole(*split_ids: str) -> list[tuple[str, int]]:
    """Every piece of a bounded source once."""
    return [(split_id, position) for split_id in split_ids for position in (1, 2, 3)]


# Readers


@pytest.mark.parametrize(
    ("mode", "readings"),
    [
        (SEQUENTIAL, ["assign a @None", *["read"] * 3, "assign b @None", *["read"] * 3]),
        (MULTIPLEXED, ["assign a @None", "assign b @None", *["read"] * 3]),
        (PARALLEL, None),  # two readers take turns
    ],
)
async def test_bounded_source_is_read_once(mode: ReadingMode, readings: list[str] | None) -> None:
    """In every mode each piece is taken once, in the order of its split, and the run ends."""
    reading = Reading(bounded("a", "b", mode=mode))

    await reading.run()

    taken = [(piece.split_id, piece.position) for piece in reading.taken]
    assert sorted(taken) == whole("a", "b")
    assert (reading.positions("a"), reading.positions("b")) == ([1, 2, 3], [1, 2, 3])
    assert reading.coordinator.progress() == [
        SplitProgress(each, SplitState.FINISHED, position=3, total=3, is_caught_up=True)
        for each in "ab"
    ]
    assert (reading.coordinator.is_caught_up, reading.coordinator.buffer.nbytes) == (True, 0)
    calls = reading.source.calls
    assert (calls[:2], calls[-1]) == (["connect", "discover"], "disconnect")
    if readings is not None:
        assert calls[2:-1] == ["open", *readings, "close"]


@pytest.mark.parametrize(
    ("mode", "at_once", "opened"), [(SEQUENTIAL, 1, 1), (MULTIPLEXED, 1, 1), (PARALLEL, 3, 7)]
)
async def test_mode_sets_the_number_of_readers(
    mode: ReadingMode, at_once: int, opened: int
) -> None:
    """One reader has all splits, or `parallelism` readers have one split each."""
    settings = CoordinatorSettings("planes", parallelism=3)
    reading = Reading(bounded(*"abcdefg", mode=mode), settings)
    source = reading.source
    source.hold("read")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(reading.run())
        await source.wait_for(lambda: source.calls.count("read") == at_once)
        source.release("read")

    assert (source.most_open_readers, source.calls.count("open")) == (at_once, opened)
    assert len(reading.taken) == 21


async def test_unbounded_splits_all_have_readers() -> None:
    """Splits without an end do not wait for each other, whatever `parallelism` says."""
    settings = CoordinatorSettings("planes", parallelism=1)
    reading = Reading(unbounded(*"abcdefg", mode=PARALLEL), settings)

    async with reading.running() as coordinator:
        await reading.source.wait_for(lambda: coordinator.is_caught_up)

    assert reading.source.most_open_readers == 7


async def test_lookups_run_between_pieces() -> None:
    """Other tasks of the loop run after each piece that is taken."""
    reading = Reading(bounded("a", "b", mode=PARALLEL))
    turns: list[int] = []
    reading.on_take = lambda _: turns.append(0)

    async def look_up() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    task = asyncio.create_task(look_up())
    await asyncio.sleep(0)
    await reading.run()
    task.cancel()

    assert "00" not in "".join(map(str, turns))


# Buffers


async def test_untaken_pieces_are_bounded() -> None:
    """Pieces that were read and not taken have at most `buffer_bytes`."""
    source = FakeSource(is_bounded=True)
    for split_id in "abcdefghij":
        source.add(split_id, *pieces(1, nbytes=1000))
    reading = Reading(source, CoordinatorSettings("planes", buffer_bytes=3000))
    held: list[int] = []
    reading.on_take = lambda _: held.append(reading.coordinator.buffer.nbytes)

    await reading.run()

    assert (len(reading.taken), max(held)) == (10, 1256)


async def test_buffer_lanes_take_turns() -> None:
    """Parcels leave in the order of their lane; lanes take turns; each arrival is reported."""
    arrivals: list[str] = []
    buffer = SplitBuffer[str](10_000, lambda: arrivals.append("arrived"))
    for lane, parcel in (("x", "x1"), ("x", "x2"), ("x", "x3"), ("y", "y1"), ("y", "y2")):
        await buffer.put(lane, parcel, nbytes=0)

    assert [buffer.pop() for _ in range(6)] == ["x1", "y1", "x2", "y2", "x3", None]
    assert (len(arrivals), buffer.nbytes) == (5, 0)


@pytest.mark.parametrize(("nbytes", "fitting"), [(0, 3), (77, 3), (78, 2), (10**9, 1)])
async def test_full_lane_makes_its_reader_wait(nbytes: int, fitting: int) -> None:
    """A lane takes parcels up to its bytes, 256 for each parcel included, or one larger parcel."""
    buffer = SplitBuffer[int](1_000, lambda: None)
    puts = [asyncio.ensure_future(buffer.put("x", at, nbytes=nbytes)) for at in range(4)]
    other = asyncio.ensure_future(buffer.put("y", 9, nbytes=nbytes))
    await asyncio.sleep(0)

    assert ([each.done() for each in puts].count(True), other.done()) == (fitting, True)
    assert buffer.nbytes == (fitting + 1) * (nbytes + 256)
    assert buffer.pop() == 0
    await asyncio.sleep(0)
    assert [each.done() for each in puts].count(True) == min(fitting + 1, 4)
    for each in puts:
        each.cancel()


async def test_cancelled_put_leaves_nothing() -> None:
    """A parcel whose wait for room is cancelled does not arrive later."""
    buffer = SplitBuffer[str](300, lambda: None)
    await buffer.put("x", "x1", nbytes=0)
    waiting = asyncio.create_task(buffer.put("x", "x2", nbytes=0))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])

    assert [buffer.pop(), buffer.pop(), buffer.nbytes] == ["x1", None, 0]


# Faults


@pytest.mark.parametrize("mode", ReadingMode)
@pytest.mark.parametrize("calls", [["open"], ["assign"], ["read", "read", "read"]])
async def test_failed_reader_is_replaced(mode: ReadingMode, calls: list[str]) -> None:
    """A new reader goes on from the last positions: no piece is lost, none comes twice."""
    reading = Reading(bounded("a", "b", mode=mode))
    reading.source.fail_next(calls[0], *[None] * (len(calls) - 1), DOWN)

    with capture_logs() as logs:
        await reading.run()

    assert sorted((piece.split_id, piece.position) for piece in reading.taken) == whole("a", "b")
    failures = sum(split.failures_total for split in reading.coordinator.progress())
    assert failures == (2 if mode is MULTIPLEXED and calls != ["open"] else 1)
    assert [line["detail"] for line in logs if line["event"] == "source.reading_failed"] == ["down"]


async def test_fault_spares_finished_splits() -> None:
    """A failed reader fails the splits that it had and had not finished."""
    reading = Reading(bounded("a", "b"))
    reading.source.append("b", *pieces(1))
    reading.source.fail_next("read", None, None, None, DOWN)

    await reading.run()

    assert [split.failures_total for split in reading.coordinator.progress()] == [0, 1]
    assert reading.positions("b") == [1, 2, 3, 4]


@pytest.mark.parametrize(("error", "attempts"), [(DOWN, 5), (FORBIDDEN, 1)])
@pytest.mark.parametrize("call", ["connect", "discover", "read"])
async def test_lasting_fault_ends_a_bounded_source(
    call: str, error: BackendError, attempts: int
) -> None:
    """A source is given up after five failures of a call in a row, or a lasting one."""
    reading = Reading(bounded("a", "b"))
    reading.source.fail_next(call, *[None] * (call == "read"), *[error] * 9)

    with pytest.raises(BackendError) as caught:
        async with asyncio.timeout(60.0):
            await reading.coordinator.run()

    progress, calls = reading.coordinator.progress(), reading.source.calls
    assert (caught.value, reading.coordinator.is_caught_up) == (error, False)
    if call == "read":
        assert (calls.count("read"), len(reading.taken)) == (1 + attempts, 2)
        assert SplitState.FAILED in {split.state for split in progress}
        assert {(split.last_error, split.position) for split in progress} == {(str(error), 1)}
    else:
        assert (calls.count("connect"), reading.taken) == (attempts, [])
        assert reading.coordinator.last_error == error.detail


async def test_unbounded_source_is_never_given_up() -> None:
    """A split that failed waits for its next attempt, and is not caught up; the next succeeds."""
    reading = Reading(unbounded("a"))
    reading.source.fail_next("open", FORBIDDEN)

    async with reading.running() as coordinator:
        await reading.source.wait_for(
            lambda: [split.failures_total for split in coordinator.progress()] == [1]
        )
        waiting = (coordinator.progress()[0].state, coordinator.is_caught_up)
        await reading.source.wait_for(lambda: coordinator.is_caught_up)

    assert waiting == (SplitState.WAITING, False)
    assert reading.positions("a") == [0]


async def test_broken_enumerator_stops_no_reader() -> None:
    """While discovery fails, pieces are read; the fault is shown and logged once."""
    reading = Reading(unbounded("a"))
    source = reading.source
    with capture_logs() as logs:
        async with reading.running() as coordinator:
            await source.wait_for(lambda: reading.positions("a") == [0])
            source.fail_next("discover", DOWN)
            await source.wait_for(lambda: coordinator.last_error == DOWN.detail)
            source.append("a", *pieces(3))
            await source.wait_for(lambda: reading.positions("a") == [0, 1, 2, 3])
            await source.wait_for(lambda: coordinator.last_error is None)

    faults = [line for line in logs if line["event"] == "source.discovery_failed"]
    assert [(line["dimension"], line["detail"]) for line in faults] == [("planes", "down")]


async def test_fault_of_the_taker_ends_the_run() -> None:
    """An error of `take` is raised as it is, and the piece does not count as read."""
    reading = Reading(bounded("a", "b", mode=PARALLEL))

    def refuse(_: SplitPiece) -> None:
        raise BackendError(ErrorCode.SCHEMA_CHANGED, "no room")

    reading.on_take = refuse

    with pytest.raises(BackendError, match="no room"):
        await reading.run()
    assert {split.position for split in reading.coordinator.progress()} == {None}


@pytest.mark.parametrize("what", ["connect", "discover", "open", "assign", "read"])
async def test_cancellation_closes_everything(what: str) -> None:
    """Wherever the source hangs, cancellation closes its readers and its enumerator."""
    reading = Reading(unbounded("a", "b"))
    source = reading.source
    source.hold(what)

    async with reading.running():
        await source.wait_for(lambda: any(line.startswith(what) for line in source.calls))

    assert source.calls.count("disconnect") == (what != "connect")


# Following


async def test_new_splits_are_read() -> None:
    """A split that appears is read by the same reader; until then the source is not caught up."""
    reading = Reading(unbounded("a"))
    seen: list[tuple[str, bool]] = []  # each piece, and whether all was caught up before it
    reading.on_take = lambda piece: seen.append((piece.split_id, reading.coordinator.is_caught_up))

    async with reading.running() as coordinator:
        await reading.source.wait_for(lambda: coordinator.is_caught_up)
        reading.source.add("b", *pieces(1))
        await reading.source.wait_for(lambda: reading.positions("b") == [1])
        await reading.source.wait_for(lambda: coordinator.is_caught_up)

    assert next(was_caught_up for split_id, was_caught_up in seen if split_id == "b") is False
    assert (reading.source.calls.count("open"), reading.source.calls.count("connect")) == (1, 1)


async def test_position_goes_back_with_a_table_change() -> None:
    """After a table change a split may restart at an earlier position, for the next reader too."""
    reading = Reading(unbounded("a"))
    source = reading.source
    source.append("a", *pieces(4))
    source.splits["a"][3] = SplitPiece("a", 1, changes=[TableChange("truncated")])
    source.fail_next("read", None, None, None, None, DOWN)

    async with reading.running():
        await source.wait_for(lambda: "assign a @1" in source.calls)

    assert [piece.position for piece in reading.taken[:4]] == [1, 2, 3, 1]


async def test_watermark_is_that_of_the_slowest_split() -> None:
    """The watermark is the least of the splits; one that is caught up and idle does not count."""
    settings = CoordinatorSettings("planes", idle_after_s=5.0)
    reading = Reading(unbounded("a", "b", "c"), settings, hand_s=0.0)
    source = reading.source
    source.append("a", at_time(100))
    source.append("b", at_time(200))

    async with reading.running() as coordinator:
        await source.wait_for(lambda: coordinator.is_caught_up)
        held_back = (
            coordinator.watermarks.valve.watermark_ms,
            [each.is_idle for each in coordinator.progress()],
        )
        reading.hand_s = 4.0
        source.append("a", at_time(150))
        await source.wait_for(lambda: reading.positions("a") == [1, 2])
        source.append("b", at_time(250))
        await source.wait_for(lambda: reading.positions("b") == [1, 2])
        reading.hand_s = 5.0
        await source.wait_for(lambda: coordinator.progress()[2].is_idle)
        going_on = (
            coordinator.watermarks.valve.watermark_ms,
            [each.is_idle for each in coordinator.progress()],
        )

    assert held_back == (NO_WATERMARK_MS, [False, False, False])
    assert going_on == (150, [False, False, True])


async def test_split_ahead_of_the_drift_is_paused() -> None:
    """A split more than `max_drift` ahead of the slowest is not read until that has caught up."""
    reading = Reading(unbounded("a", "b"), CoordinatorSettings("planes", max_drift_ms=100))
    source = reading.source
    source.append("a", at_time(1000), at_time(2000))
    source.append("b", at_time(1000))

    async with reading.running() as coordinator:
        await source.wait_for(lambda: "pause a" in source.calls)
        paused = [split.is_paused for split in coordinator.progress()]
        assert coordinator.has_paused
        source.append("a", at_time(2001))
        source.append("b", at_time(1899), at_time(1900))
        await source.wait_for(lambda: reading.positions("a") == [1, 2, 3])

    assert paused == [True, False]
    order = [(piece.split_id, piece.watermark_ms) for piece in reading.taken]
    assert order.index(("a", 2001)) > order.index(("b", 1900))
    assert [line for line in source.calls if line.startswith("pause")] == ["pause a", "pause"]
