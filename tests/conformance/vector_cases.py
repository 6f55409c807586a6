"""Replays cases of `vectors/` against queues, valve and retries; a record is a slice of one row."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lookup_core.backoff import Backoff
from lookup_core.event_time.watermark_valve import WatermarkValve
from lookup_core.operator.element_queue import ElementQueue, Mark, OrderedQueue, Slice, SlotId
from lookup_core.operator.segmented_queue import UnorderedQueue

QUEUES: dict[str, type[OrderedQueue | UnorderedQueue]] = {
    "ordered": OrderedQueue,
    "unordered": UnorderedQueue,
}
Words = dict[str, Any]


class QueueCase:
    """A queue, and the words of the case for its slots."""

    def __init__(self, case: Words) -> None:
        self.mode: str = case["mode"]
        self.queue: ElementQueue = QUEUES[self.mode](case["capacity"])
        self._elements: dict[SlotId, Words] = {}  # {slot: record or watermark}
        self._slots: dict[str, SlotId] = {}  # {record: slot}
        self._results: dict[str, list[Any]] = {}  # {record: values}
        self._errors: dict[str, str] = {}  # {record: error}
        self._failures: list[Words] = []  # in the order of emission

    def replay(self, operations: list[Words]) -> None:
        """Compare each operation with its outputs; raises KeyError for an unknown one."""
        for step, operation in enumerate(operations):
            kind = next(key for key in operation if key in _KINDS)
            _KINDS[kind](self, operation, f"operation {step}: {operation}")
            self.queue.check_invariants()

    def put(self, operation: Words, where: str) -> None:
        """Put a record or a watermark."""
        element = operation["put"]
        is_record = "record" in element
        slot = self.queue.try_put(Slice(1, math.inf) if is_record else Mark())
        assert (slot is not None) == operation["accepted"], where
        if slot is not None:
            self._elements[slot] = element
            if is_record:
                self._slots[element["record"]] = slot

    def complete(self, operation: Words, where: str) -> None:
        """Complete a record with a result, the result of a timeout, or an error."""
        record = next(operation[key] for key in ("complete", "timeout", "fail") if key in operation)
        is_applied = self.queue.complete(self._slots[record], np.ones(1, np.bool_))
        assert is_applied == operation["applied"], where
        if is_applied and "fail" in operation:
            self._errors[record] = operation["error"]
        elif is_applied:
            self._results[record] = operation["result"]

    def emit(self, operation: Words, where: str) -> None:
        """Emit all that may leave."""
        outputs = []
        while (one := self._emitted()) is not None:
            outputs += one
        assert outputs == operation["expected"], where

    def emit_one(self, operation: Words, where: str) -> None:
        """Emit one element."""
        assert (self._emitted() or []) == operation["expected"], where

    def check(self, operation: Words, where: str) -> None:
        """Compare levels and contents."""
        size, segments = self.queue.capacity - self.queue.free_places(), self._segments()
        found = {
            "size": size,
            "empty": size == 0,
            "has_completed": bool(segments and segments[0][0]),
            "pending": self._pending(segments),
            "failures": self._failures,
        }
        assert {name: found[name] for name in operation["check"]} == operation["check"], where

    def _emitted(self) -> list[Words] | None:
        emission = self.queue.pop_completed()
        if emission is None:
            return None
        element = self._elements[emission.slot]
        if "watermark" in element:
            return [element]
        record = element["record"]
        if record in self._errors:
            self._failures.append({"record": record, "error": self._errors[record]})
            return []
        return [{**element, "value": value} for value in self._results[record]]

    def _segments(self) -> list[tuple[list[SlotId], list[SlotId]]]:
        """The completed and the open slots of each segment; in order, each slot is one."""
        if isinstance(self.queue, OrderedQueue):
            slots = self.queue._order
            return [([], [slot]) if self.queue._is_open(slot) else ([slot], []) for slot in slots]
        assert isinstance(self.queue, UnorderedQueue)
        return [
            ([slot for slot, _ in segment.completed], [*segment.open])
            for segment in self.queue._segments
            if not segment.is_empty
        ]

    def _pending(self, segments: list[tuple[list[SlotId], list[SlotId]]]) -> list[Any]:
        if self.mode == "ordered":
            return [self._word(slot) for one in segments for slots in one for slot in slots]
        return [
            {
                "completed": [self._word(slot) for slot in completed],
                "open": sorted(map(str, map(self._word, still_open))),
            }
            for completed, still_open in segments
        ]

    def _word(self, slot: SlotId) -> str | Words:
        element = self._elements[slot]
        return str(element["record"]) if "record" in element else element


_KINDS = {
    "put": QueueCase.put,
    "complete": QueueCase.complete,
    "timeout": QueueCase.complete,
    "fail": QueueCase.complete,
    "emit": QueueCase.emit,
    "emit_one": QueueCase.emit_one,
    "check": QueueCase.check,
}


class ValveCase:
    """A valve with the channels of a case, numbered from 0."""

    def __init__(self, case: Words) -> None:
        self._case = case
        self.valve: WatermarkValve[int] = WatermarkValve()
        for channel in range(case["channels"]):
            self.valve.add(channel)

    def replay(self) -> None:
        """Compare each event with its outputs; raises KeyError for unknown words."""
        checks = self._case.get("state", [])
        steps = zip(self._case["events"], self._case["expected"], strict=True)
        for index, (event, expected) in enumerate(steps):
            assert self._on_event(event) == expected, f"event {index}: {event}"
            self.valve.check_invariants()
            for check in checks:
                if check["after"] == index:
                    self._check_channel(check)
        if "final" in self._case:
            assert self._final() == self._case["final"]

    def _on_event(self, event: Words) -> list[Words]:
        """The changes of the output, in the order of Flink."""
        before = self.valve.watermark_ms, self.valve.is_idle
        if "watermark" in event:
            self.valve.on_watermark(event["channel"], event["watermark"])
        else:
            self.valve.on_status(event["channel"], is_idle=_IS_IDLE[event["status"]])
        outputs: list[Words] = []
        if self.valve.watermark_ms != before[0]:
            outputs.append({"watermark": self.valve.watermark_ms})
        if self.valve.is_idle != before[1]:
            outputs.append({"status": _status(is_idle=self.valve.is_idle)})
        return outputs

    def _check_channel(self, check: Words) -> None:
        time = self.valve.time_of(check["channel"])
        known = {
            "watermark": time.watermark_ms,
            "aligned": time.is_aligned,
            "status": _status(is_idle=time.is_idle),
        }
        wanted = {word: check[word] for word in check if word not in {"after", "channel"}}
        assert {word: known[word] for word in wanted} == wanted, check

    def _final(self) -> Words:
        times = [self.valve.time_of(channel) for channel in range(self._case["channels"])]
        known = {
            "last_watermark": self.valve.watermark_ms,
            "status": _status(is_idle=self.valve.is_idle),
            "aligned": [time.is_aligned for time in times],
            "watermarks": [time.watermark_ms for time in times],
        }
        return {word: known[word] for word in self._case["final"]}


_IS_IDLE = {"idle": True, "active": False}


def _status(*, is_idle: bool) -> str:
    return "idle" if is_idle else "active"


def replay_retry(case: Words) -> None:
    """Compare the allowed retries and their delays, twice."""
    words, expected = dict(case["strategy"]), case["expected"]
    strategy = _STRATEGIES[words.pop("type")](**words)
    for _ in range(2):
        allowed = {number: strategy.can_retry(int(number)) for number in expected["can_retry"]}
        delays = [
            round(strategy.delay_s(n + 1) * 1000)
            for n in range(len(expected["delay_after_attempt_ms"]))
        ]
        assert {"can_retry": allowed, "delay_after_attempt_ms": delays} == expected


def _no_retry() -> Backoff:
    return Backoff(max_retries=0)


def _fixed_delay(*, max_attempts: int, delay_ms: int) -> Backoff:
    delay_s = delay_ms / 1000
    return Backoff(max_retries=max_attempts, initial_s=delay_s, max_s=delay_s)


def _exponential_backoff(
    *, max_attempts: int, initial_delay_ms: int, max_delay_ms: int, multiplier: float
) -> Backoff:
    return Backoff(
        max_retries=max_attempts,
        initial_s=initial_delay_ms / 1000,
        max_s=max_delay_ms / 1000,
        multiplier=multiplier,
    )


_STRATEGIES: dict[str, Callable[..., Backoff]] = {
    "none": _no_retry,
    "fixed_delay": _fixed_delay,
    "exponential_backoff": _exponential_backoff,
}
