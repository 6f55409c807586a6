"""Reading a source: who gets which splits, what is taken, and what becomes of faults."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.sources.splits import ReadingMode, SplitProgress, SplitState
from lookup_core.watermark_valve import NO_WATERMARK_MS
from service.connectors.memory.source import FakeSource
from service.connectors.ports.source import SplitPiece
from service.engine.source_coordinator import CoordinatorSettings, SourceCoordinator
from tests.service.engine.running import PATIENCE_S, SCHEMA

DOWN = BackendError(ErrorCode.CONNECTION_LOST, "down")
FORBIDDEN = BackendError(ErrorCode.FORBIDDEN, "no right to read")
CHANGE = TableChange("truncated")


def pieces(count: int, *, nbytes: int = 0) -> list[SplitPiece]:
    """So many, without changes."""
    return [SplitPiece("", 0, nbytes=nbytes)] * count


def at(watermark_ms: int) -> SplitPiece:
    """A piece with this watermark."""
    return SplitPiece("", 0, watermark_ms=watermark_ms)


@dataclass(slots=True)
class User:
    """Takes what a source brings, and notes it."""

    source: FakeSource
    settings: CoordinatorSettings = field(default_factory=lambda: CoordinatorSettings("planes"))
    taken: list[SplitPiece] = field(default_factory=list)
    on_take: Callable[[SplitPiece], None] = lambda _: None
    seconds: float = 0.0  # what the clock shows

    def take(self, piece: SplitPiece) -> None:
        """Do what the test asks for, and note the piece."""
        self.on_take(piece)
        self.taken.append(piece)

    def coordinator(self) -> SourceCoordinator:
        """A coordinator for this user, with a clock that the test moves."""
        return SourceCoordinator(
            self.source,
            SCHEMA,
            take=self.take,
            settings=self.settings,
            clock=lambda: self.seconds,
        )

    def real_coordinator(self) -> SourceCoordinator:
        """The same with the true time, for what is tried again after a pause."""
        return SourceCoordinator(self.source, SCHEMA, take=self.take, settings=self.settings)

    def positions(self, split_id: str) -> list[int]:
        """Where the pieces of a split ended, but for mere signs of life."""
        told = [piece.position for piece in self.taken if piece.split_id == split_id]
        return sorted(set(told)) if told == sorted(told) else told


def bounded(*split_ids: str, mode: ReadingMode = ReadingMode.MULTIPLEXED) -> FakeSource:
    """A bounded source of splits with three pieces each."""
    source = FakeSource(is_bounded=True, reading_mode=mode)
    for split_id in split_ids:
        source.add(split_id, *pieces(3))
    return source


def unbounded(*split_ids: str, mode: ReadingMode = ReadingMode.MULTIPLEXED) -> FakeSource:
    """An unbounded source of splits without pieces, which looks for new ones all the time."""
    source = FakeSource(
        is_bounded=False, reading_mode=mode, discovery_interval_s=0.001, patience_s=0.001
    )
    for split_id in split_ids:
        source.add(split_id)
    return source


async def run_to_end(coordinator: SourceCoordinator) -> None:
    """Run what comes to an end, within the test's time, and leave no task behind."""
    before = asyncio.all_tasks()
    async with asyncio.timeout(PATIENCE_S):
        await coordinator.run()
    assert asyncio.all_tasks() == before


@asynccontextmanager
async def running(coordinator: SourceCoordinator) -> AsyncIterator[None]:
    """A coordinator at work until the block ends; then it leaves no task behind."""
    before = asyncio.all_tasks()
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(PATIENCE_S):
        task = tasks.create_task(coordinator.run())
        yield
        task.cancel()
    assert asyncio.all_tasks() == before


# Reading


@pytest.mark.parametrize("mode", ReadingMode)
async def test_bounded_source_is_taken_whole(mode: ReadingMode) -> None:
    """In every mode each piece is taken once, in the order of its split, and the run ends."""
    user = User(bounded("a", "b", "c", mode=mode))

    await run_to_end(coordinator := user.coordinator())

    taken = [(piece.split_id, piece.position) for piece in user.taken]
    assert sorted(taken) == [(split_id, at) for split_id in "abc" for at in (1, 2, 3)]
    assert {split_id: user.positions(split_id) for split_id in "abc"} == {
        each: [1, 2, 3] for each in "abc"
    }
    assert coordinator.progress() == [
        SplitProgress(each, SplitState.FINISHED, position=3, total=3, is_caught_up=True)
        for each in "abc"
    ]
    assert (coordinator.is_caught_up, coordinator.buffered_bytes) == (True, 0)


async def test_source_without_splits_ends() -> None:
    """A bounded source that has nothing is read at once."""
    user = User(bounded())

    await run_to_end(user.coordinator())

    assert (user.taken, user.source.diary) == ([], ["connect", "discover", "disconnect"])


@pytest.mark.parametrize(
    ("mode", "readers"),
    [(ReadingMode.SEQUENTIAL, 1), (ReadingMode.MULTIPLEXED, 1), (ReadingMode.PARALLEL, 3)],
)
async def test_readers_are_as_many_as_the_mode_says(mode: ReadingMode, readers: int) -> None:
    """One for all splits, or as many at a time as the settings allow."""
    user = User(bounded(*"abcdefg", mode=mode), CoordinatorSettings("planes", parallelism=3))
    user.source.hold("read")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run_to_end(user.coordinator()))
        await user.source.wait_for(lambda: user.source.diary.count("read") == readers)
        user.source.release("read")

    opened = 7 if mode is ReadingMode.PARALLEL else 1
    assert (user.source.most_open_readers, user.source.diary.count("open")) == (readers, opened)
    assert len(user.taken) == 21


async def test_endless_splits_all_have_readers() -> None:
    """Of an unbounded source no split waits for another's end, however many there are."""
    user = User(
        unbounded(*"abcdefg", mode=ReadingMode.PARALLEL),
        CoordinatorSettings("planes", parallelism=1),
    )

    async with running(coordinator := user.coordinator()):
        await user.source.wait_for(lambda: coordinator.is_caught_up)

    assert user.source.most_open_readers == 7


async def test_enumerator_outlives_the_readers() -> None:
    """It is opened before the first of them, and closed after the last."""
    user = User(bounded("a", "b", mode=ReadingMode.PARALLEL))

    await run_to_end(user.coordinator())

    assert user.source.diary[0] == "connect"
    assert user.source.diary[-1] == "disconnect"
    assert user.source.diary.count("close") == 2


async def test_reader_waits_while_nobody_takes() -> None:
    """What was read and not taken is bounded: a buffer, and what one read brought."""
    source = FakeSource(is_bounded=True)
    source.add("a", *pieces(50, nbytes=1000))
    user = User(source, CoordinatorSettings("planes", buffer_bytes=3000))
    coordinator = user.coordinator()
    held: list[int] = []
    user.on_take = lambda _: held.append(coordinator.buffered_bytes)

    await run_to_end(coordinator)

    assert len(user.taken) == 50
    assert max(held) <= 3000


async def test_lookups_have_turns_between_pieces() -> None:
    """Other tasks of the loop go on after each piece, however many wait to be taken."""
    user = User(bounded("a", "b", mode=ReadingMode.PARALLEL))
    turns: list[int] = []
    user.on_take = lambda _: turns.append(0)

    async def look_up() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    task = asyncio.create_task(look_up())
    await run_to_end(user.coordinator())
    task.cancel()

    assert "00" not in "".join(map(str, turns))


# Faults


@pytest.mark.parametrize("mode", ReadingMode)
async def test_failed_reader_is_replaced(mode: ReadingMode) -> None:
    """A new reader goes on from the last positions: nothing is lost, nothing comes twice."""
    user = User(bounded("a", "b", mode=mode))
    user.source.fail_next("read", None, None, DOWN)

    with capture_logs() as logs:
        await run_to_end(coordinator := user.real_coordinator())

    taken = sorted((piece.split_id, piece.position) for piece in user.taken)
    assert taken == [(split_id, at) for split_id in "ab" for at in (1, 2, 3)]
    assert sum(split.failures_total for split in coordinator.progress()) in {1, 2}
    assert [line["detail"] for line in logs if line["event"] == "source.reading_failed"] == ["down"]


async def test_lasting_fault_ends_a_bounded_source() -> None:
    """The run raises it at once; all readers are closed, and the splits show why."""
    user = User(bounded("a", "b"))
    user.source.fail_next("read", None, FORBIDDEN)

    with pytest.raises(BackendError, match="no right to read"):
        await run_to_end(coordinator := user.coordinator())

    assert [(split.state, split.position) for split in coordinator.progress()] == [
        (SplitState.FAILED, 1)
    ] * 2
    assert {split.last_error for split in coordinator.progress()} == {str(FORBIDDEN)}
    assert user.source.open_readers == 0


async def test_lasting_fault_of_the_search_ends_a_bounded_source() -> None:
    """Without splits there is nothing to wait for."""
    user = User(bounded("a"))
    user.source.fail_next("connect", FORBIDDEN)

    with pytest.raises(BackendError, match="no right to read"):
        await run_to_end(coordinator := user.coordinator())

    assert (user.taken, coordinator.is_caught_up) == ([], False)
    assert coordinator.last_error == FORBIDDEN.detail


async def test_unbounded_source_never_gives_up() -> None:
    """Whatever the fault is, its splits wait for another try, and are not caught up."""
    user = User(unbounded("a"))
    user.source.fail_next("open", FORBIDDEN)

    async with running(coordinator := user.real_coordinator()):
        await user.source.wait_for(lambda: coordinator.progress()[:1] != [])
        await user.source.wait_for(lambda: coordinator.progress()[0].failures_total == 1)
        waiting = (coordinator.progress()[0].state, coordinator.is_caught_up)
        await user.source.wait_for(lambda: coordinator.is_caught_up)

    assert waiting == (SplitState.WAITING, False)
    assert user.positions("a") == [0]


async def test_broken_enumerator_stops_no_reader() -> None:
    """Pieces come as before; the fault is shown, and told once in the log."""
    user = User(unbounded("a"))
    coordinator = user.coordinator()

    with capture_logs() as logs:
        async with running(coordinator):
            await user.source.wait_for(lambda: user.positions("a") == [0])
            user.source.fail_next("discover", DOWN)
            await user.source.wait_for(lambda: coordinator.last_error == DOWN.detail)
            user.source.tell("a", *pieces(3))
            await user.source.wait_for(lambda: user.positions("a") == [0, 1, 2, 3])

    faults = [line for line in logs if line["event"] == "source.discovery_failed"]
    assert [(line["dimension"], line["detail"]) for line in faults] == [("planes", "down")]


async def test_fault_of_the_taker_ends_the_run() -> None:
    """It is raised as it was, and all readers are closed."""
    user = User(bounded("a", "b", mode=ReadingMode.PARALLEL))

    def refuse(_: SplitPiece) -> None:
        raise BackendError(ErrorCode.SCHEMA_CHANGED, "no room")

    user.on_take = refuse

    with pytest.raises(BackendError, match="no room"):
        await run_to_end(coordinator := user.coordinator())
    assert (user.taken, user.source.open_readers) == ([], 0)
    assert {split.position for split in coordinator.progress()} == {None}


@pytest.mark.parametrize("what", ["connect", "discover", "open", "assign", "read"])
async def test_cancellation_closes_everything(what: str) -> None:
    """Wherever the source hangs, readers and enumerator are closed, and no task is left."""
    user = User(unbounded("a", "b"))
    user.source.hold(what)

    async with running(user.coordinator()):
        await user.source.wait_for(lambda: any(line.startswith(what) for line in user.source.diary))

    assert user.source.open_readers == 0
    has_enumerator = what != "connect"
    assert user.source.diary.count("disconnect") == has_enumerator


# Following


async def test_new_splits_are_read_while_running() -> None:
    """A split that appears is given to a reader; till then the source is not caught up."""
    user = User(unbounded("a"))
    coordinator = user.coordinator()
    seen: list[tuple[str, bool]] = []  # each piece, and whether all was caught up before it
    user.on_take = lambda piece: seen.append((piece.split_id, coordinator.is_caught_up))

    async with running(coordinator):
        await user.source.wait_for(lambda: coordinator.is_caught_up)
        user.source.add("b", *pieces(1))
        await user.source.wait_for(lambda: user.positions("b") == [1])
        await user.source.wait_for(lambda: coordinator.is_caught_up)

    assert next(was_caught_up for split_id, was_caught_up in seen if split_id == "b") is False
    assert user.source.diary.count("open") == 1


async def test_position_goes_back_with_a_table_change() -> None:
    """A split that begins anew says that nothing before counts; a new reader goes on from there."""
    user = User(unbounded("a"))
    user.source.tell("a", *pieces(4))
    user.source.splits["a"][3] = SplitPiece("a", 1, changes=[CHANGE])
    user.source.fail_next("read", None, None, None, None, DOWN)

    async with running(user.real_coordinator()):
        await user.source.wait_for(lambda: user.source.diary.count("open") == 2)
        await user.source.wait_for(lambda: "assign a @1" in user.source.diary)

    assert [piece.position for piece in user.taken[:4]] == [1, 2, 3, 1]


async def test_watermark_is_that_of_the_slowest_split() -> None:
    """Silent splits hold nobody back once they are caught up and idle."""
    user = User(unbounded("a", "b", "c"), CoordinatorSettings("planes", idle_after_s=5.0))
    user.source.tell("a", at(100))
    user.source.tell("b", at(200))

    async with running(coordinator := user.coordinator()):
        await user.source.wait_for(lambda: coordinator.is_caught_up)
        held_back = (coordinator.watermark_ms, coordinator.is_idle)
        user.seconds = 4.0
        user.source.tell("a", at(150))
        await user.source.wait_for(lambda: user.positions("a") == [1, 2])
        user.source.tell("b", at(250))
        await user.source.wait_for(lambda: user.positions("b") == [1, 2])
        user.seconds = 5.0
        await user.source.wait_for(lambda: coordinator.progress()[2].is_idle)
        going_on = (coordinator.watermark_ms, coordinator.is_idle)

    assert (held_back, going_on) == ((NO_WATERMARK_MS, False), (150, False))


async def test_split_that_is_ahead_waits() -> None:
    """More than the drift ahead of the slowest, it is paused, and goes on when that has come."""
    user = User(unbounded("a", "b"), CoordinatorSettings("planes", max_drift_ms=100))
    user.source.tell("a", at(1000), at(2000))
    user.source.tell("b", at(1000))

    async with running(coordinator := user.coordinator()):
        await user.source.wait_for(lambda: "pause a" in user.source.diary)
        paused = [split.is_paused for split in coordinator.progress()]
        user.source.tell("a", at(2001))
        user.source.tell("b", at(1899), at(1900))
        await user.source.wait_for(lambda: user.positions("a") == [1, 2, 3])

    assert paused == [True, False]
    order = [(piece.split_id, piece.watermark_ms) for piece in user.taken]
    assert order.index(("a", 2001)) > order.index(("b", 1900))
    assert user.source.diary.count("pause") == 1


async def test_splits_run_free_without_a_drift() -> None:
    """Nobody is paused where nothing says how far a split may be ahead."""
    user = User(unbounded("a", "b"))
    user.source.tell("a", at(1), at(10**12))
    user.source.tell("b", at(1))

    async with running(user.coordinator()):
        await user.source.wait_for(lambda: user.positions("a") == [1, 2])

    assert [line for line in user.source.diary if line.startswith("pause")] == []
