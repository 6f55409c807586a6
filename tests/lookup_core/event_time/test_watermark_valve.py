"""Watermark valve: its watermarks and statuses, and a model.

Cases shared with Flink's valve are in `tests/conformance`.
"""

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lookup_core.event_time.watermark_valve import (
    NO_WATERMARK_MS,
    ChannelTime,
    WatermarkValve,
)
from tests.lookup_core.hypothesis_runs import example_counts, run_model


def test_unknown_channels_are_errors() -> None:
    """A watermark or a status of an unknown channel is an error and changes nothing."""
    valve: WatermarkValve[str] = WatermarkValve()
    assert valve.is_idle
    for name, watermark_ms in (("a", 10), ("b", 20)):
        valve.add(name)
        valve.on_watermark(name, watermark_ms)
    assert valve.time_of("a") == ChannelTime(10, is_idle=False, is_aligned=True)

    valve.on_status("b", is_idle=True)
    valve.add("c")
    valve.add("a")  # twice, or unknown, is harmless
    valve.remove("d")
    with pytest.raises(KeyError):
        valve.on_watermark("d", 11)
    with pytest.raises(KeyError):
        valve.on_status("d", is_idle=True)

    times = [valve.time_of(name) for name in "abc"]
    assert (valve.watermark_ms, valve.is_idle, "d" in valve) == (10, False, False)
    assert [(each.is_idle, each.is_aligned) for each in times] == [
        *((False, True), (True, False), (False, False))
    ]


def test_gone_channels_take_no_memory() -> None:
    """Removed channels far ahead of a slow one take no memory."""
    valve: WatermarkValve[int] = WatermarkValve()
    valve.add(-1)
    valve.on_watermark(-1, 10)

    for number in range(200):
        valve.add(number)
        valve.on_watermark(number, 1_000)
        valve.remove(number)
        valve.check_invariants()

    assert (-1 in valve, 199 in valve) == (True, False)
    assert len(valve._bounds) < 20


@dataclass(slots=True)
class NaiveChannel:
    """One channel; its alignment is updated when it changes."""

    watermark_ms: int = NO_WATERMARK_MS
    is_idle: bool = False
    is_aligned: bool = False

    @property
    def time(self) -> ChannelTime:
        """The state as the valve reports it."""
        return ChannelTime(self.watermark_ms, self.is_idle, self.is_aligned)


class NaiveValve:
    """Twin of the valve: the same output from lists and scans, without a heap."""

    def __init__(self) -> None:
        self.channels: dict[int, NaiveChannel] = {}
        self.output_ms = NO_WATERMARK_MS

    @property
    def is_idle(self) -> bool:
        """Whether no channel is active."""
        return all(each.is_idle for each in self.channels.values())

    def add(self, number: int) -> None:
        """A channel is added."""
        self.channels[number] = NaiveChannel(is_aligned=self.output_ms == NO_WATERMARK_MS)

    def remove(self, number: int) -> None:
        """A channel is removed."""
        if not self.channels.pop(number).is_idle:
            self._advance()

    def on_watermark(self, number: int, watermark_ms: int) -> None:
        """A channel has a watermark."""
        channel = self.channels[number]
        if channel.is_idle or watermark_ms <= channel.watermark_ms:
            return
        channel.watermark_ms = watermark_ms
        channel.is_aligned = channel.is_aligned or watermark_ms >= self.output_ms
        self._advance()

    def on_status(self, number: int, *, is_idle: bool) -> None:
        """A channel is idle, or active."""
        channel = self.channels[number]
        if channel.is_idle == is_idle:
            return
        channel.is_idle = is_idle
        channel.is_aligned = not is_idle and channel.watermark_ms >= self.output_ms
        if is_idle and channel.watermark_ms == self.output_ms:
            self._advance()

    def _advance(self) -> None:
        all_ms = [each.watermark_ms for each in self.channels.values()]
        counting = [each.watermark_ms for each in self.channels.values() if each.is_aligned]
        found_ms = max([*all_ms, self.output_ms]) if self.is_idle else min(counting, default=None)
        self.output_ms = max(self.output_ms, self.output_ms if found_ms is None else found_ms)


class ValveMachine(RuleBasedStateMachine):
    """The valve against its twin."""

    numbers = st.integers(0, 5)
    watermarks = st.one_of(st.integers(-3, 12), st.sampled_from([NO_WATERMARK_MS, 2**63 - 1]))

    @initialize(count=st.integers(0, 5))
    def start(self, count: int) -> None:
        """Start with some channels."""
        self.valve: WatermarkValve[int] = WatermarkValve()
        self.twin = NaiveValve()
        self.shown_ms = NO_WATERMARK_MS  # it never goes back
        for number in range(count):
            self.valve.add(number)
            self.twin.add(number)

    @rule(number=numbers)
    def come_or_go(self, number: int) -> None:
        """A channel is removed or added."""
        if number in self.twin.channels:
            self.valve.remove(number)
            self.twin.remove(number)
        else:
            self.valve.add(number)
            self.twin.add(number)

    @precondition(lambda self: self.twin.channels)
    @rule(choice=numbers, watermark_ms=watermarks)
    def on_watermark(self, choice: int, watermark_ms: int) -> None:
        """A channel has a watermark."""
        number = self._chosen(choice)
        self.valve.on_watermark(number, watermark_ms)
        self.twin.on_watermark(number, watermark_ms)

    @precondition(lambda self: self.twin.channels)
    @rule(choice=numbers, is_idle=st.booleans())
    def on_status(self, choice: int, *, is_idle: bool) -> None:
        """A channel is idle, or active."""
        number = self._chosen(choice)
        self.valve.on_status(number, is_idle=is_idle)
        self.twin.on_status(number, is_idle=is_idle)

    @invariant()
    def agrees_with_twin(self) -> None:
        """Output, status and all channels are those of the twin."""
        self.valve.check_invariants()
        shown = (self.valve.watermark_ms, self.valve.is_idle)
        assert shown == (self.twin.output_ms, self.twin.is_idle)
        assert self.valve.watermark_ms >= self.shown_ms
        self.shown_ms = self.valve.watermark_ms
        for number, channel in self.twin.channels.items():
            assert self.valve.time_of(number) == channel.time

    def _chosen(self, choice: int) -> int:
        return sorted(self.twin.channels)[choice % len(self.twin.channels)]


@example_counts(quick=40, full=300)
def test_valve_agrees_with_its_twin(examples: int) -> None:
    """After any events, the valve has the state that a scan of all channels finds."""
    run_model(ValveMachine, examples=examples, steps=40)
