"""What the valve puts out, this and nothing else; the shared cases stand in conformance."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lookup_core.watermark_valve import (
    NO_WATERMARK_MS,
    ChannelTime,
    ValveOutput,
    ValveStatistics,
    ValveStatus,
    ValveWatermark,
    WatermarkValve,
)
from tests.lookup_core.naive_valve import NaiveValve

IDLE, ACTIVE = ValveStatus(is_idle=True), ValveStatus(is_idle=False)


def valve_of(**watermarks_ms: int) -> WatermarkValve[str]:
    """A valve with a channel for each name, at its watermark."""
    valve: WatermarkValve[str] = WatermarkValve()
    for name in watermarks_ms:
        valve.add(name)
    for name, watermark_ms in watermarks_ms.items():
        valve.on_watermark(name, watermark_ms)
    return valve


def test_least_watermark_is_put_out() -> None:
    """Nothing before all have spoken; then the least, whenever it advances."""
    valve: WatermarkValve[str] = WatermarkValve()
    valve.add("a")
    valve.add("b")

    assert valve.on_watermark("a", 10) == []
    assert valve.on_watermark("b", 7) == [ValveWatermark(7)]
    assert valve.on_watermark("b", 9) == [ValveWatermark(9)]
    assert valve.on_watermark("b", 30) == [ValveWatermark(10)]
    assert valve.on_watermark("b", 31) == []
    assert valve.on_watermark("b", 5) == []


def test_newcomer_behind_holds_nothing_back() -> None:
    """Who comes behind the output is not counted until it has caught up, and then is."""
    valve = valve_of(a=10)

    assert valve.add("b") == []
    assert valve.on_watermark("b", 5) == []
    assert valve.on_watermark("a", 12) == [ValveWatermark(12)]
    assert valve.on_watermark("b", 12) == []
    assert valve.on_watermark("a", 20) == []
    assert valve.on_watermark("b", 15) == [ValveWatermark(15)]


def test_who_leaves_lets_others_go_on() -> None:
    """When the channel goes that held the output, the others' least is put out."""
    valve = valve_of(a=10, b=20, c=30)

    assert valve.remove("b") == []
    assert valve.remove("a") == [ValveWatermark(30)]
    assert valve.remove("c") == [IDLE]


def test_last_active_one_flushes_by_leaving() -> None:
    """When only idle channels stay behind, their largest watermark is put out."""
    valve = valve_of(a=10, b=20)
    valve.on_status("b", is_idle=True)

    assert valve.remove("a") == [ValveWatermark(20), IDLE]


def test_silent_one_takes_nothing_with_it() -> None:
    """A channel that never spoke lets by its leaving go what it held, even a flush."""
    valve = valve_of(a=10, b=20)
    valve.add("silent")
    valve.on_status("b", is_idle=True)
    valve.on_status("a", is_idle=True)

    assert valve.remove("silent") == [ValveWatermark(20), IDLE]


def test_idle_one_leaves_without_a_trace() -> None:
    """Whoever did not count changes nothing by going."""
    valve = valve_of(a=10, b=20)
    valve.on_status("a", is_idle=True)

    assert valve.remove("a") == []
    assert valve.watermark_ms == 20


def test_empty_valve_is_idle() -> None:
    """The first channel makes it active; all later ones find it so."""
    valve: WatermarkValve[str] = WatermarkValve()

    assert valve.is_idle
    assert valve.add("a") == [ACTIVE]
    assert valve.add("b") == []


def test_coming_and_going_twice_is_harmless() -> None:
    """A channel that is there stays as it is, and one that is not cannot leave."""
    valve = valve_of(a=10)

    assert valve.add("a") == []
    assert valve.remove("b") == []
    assert valve.time_of("a") == ChannelTime(10, is_idle=False, is_aligned=True)


def test_strangers_are_refused() -> None:
    """Who was not added has no say, and changes nothing."""
    valve = valve_of(a=10)

    with pytest.raises(KeyError):
        valve.on_watermark("b", 11)
    with pytest.raises(KeyError):
        valve.on_status("b", is_idle=True)
    assert valve.statistics() == ValveStatistics(10, False, 1, 1, 1)  # noqa: FBT003


def test_statistics_tell_who_counts() -> None:
    """Idle channels are not active, and those behind are not aligned."""
    valve = valve_of(a=10, b=20)
    valve.on_status("b", is_idle=True)
    valve.add("c")

    assert valve.statistics() == ValveStatistics(
        watermark_ms=10, is_idle=False, channels=3, active_channels=2, aligned_channels=1
    )


def test_channels_that_went_leave_no_memory() -> None:
    """Thousands come far ahead of one that lags, and go: nothing of them stays."""
    valve = valve_of(a=10)

    for name in map(str, range(10_000)):
        valve.add(name)
        valve.on_watermark(name, 1_000)
        valve.remove(name)

    valve.check_invariants()
    assert valve.statistics().channels == 1
    assert len(valve._bounds) < 20


class ValveMachine(RuleBasedStateMachine):
    """Any course of events gives what scanning all channels gives."""

    numbers = st.integers(0, 5)
    watermarks = st.one_of(st.integers(-3, 12), st.sampled_from([NO_WATERMARK_MS, 2**63 - 1]))

    @initialize(count=st.integers(0, 5))
    def start(self, count: int) -> None:
        """Some channels from the beginning."""
        self.valve: WatermarkValve[int] = WatermarkValve()
        self.naive = NaiveValve()
        self.shown_ms = NO_WATERMARK_MS
        for number in range(count):
            assert self.valve.add(number) == self.naive.add(number)

    @rule(number=numbers)
    def come_or_go(self, number: int) -> None:
        """A channel goes, or comes."""
        if number in self.naive.channels:
            self._same(self.valve.remove(number), self.naive.remove(number))
        else:
            self._same(self.valve.add(number), self.naive.add(number))

    @precondition(lambda self: self.naive.channels)
    @rule(choice=numbers, watermark_ms=watermarks)
    def tell_watermark(self, choice: int, watermark_ms: int) -> None:
        """A channel tells a watermark."""
        number = self._chosen(choice)
        outputs = self.valve.on_watermark(number, watermark_ms)
        self._same(outputs, self.naive.watermark(number, watermark_ms))

    @precondition(lambda self: self.naive.channels)
    @rule(choice=numbers, is_idle=st.booleans())
    def tell_status(self, choice: int, *, is_idle: bool) -> None:
        """A channel tells its status."""
        number = self._chosen(choice)
        outputs = self.valve.on_status(number, is_idle=is_idle)
        self._same(outputs, self.naive.status(number, is_idle=is_idle))

    @invariant()
    def agree(self) -> None:
        """Both know the same of every channel."""
        self.valve.check_invariants()
        assert (self.valve.watermark_ms, self.valve.is_idle) == (
            self.naive.output_ms,
            self.naive.is_idle,
        )
        for number, channel in self.naive.channels.items():
            assert self.valve.time_of(number) == channel.time

    def _chosen(self, choice: int) -> int:
        return sorted(self.naive.channels)[choice % len(self.naive.channels)]

    def _same(self, outputs: list[ValveOutput], expected: list[ValveOutput]) -> None:
        assert outputs == expected
        for output in outputs:
            if isinstance(output, ValveWatermark):
                assert output.watermark_ms > self.shown_ms
                self.shown_ms = output.watermark_ms


TestValve = ValveMachine.TestCase
TestValve.settings = settings(max_examples=200, stateful_step_count=40)
