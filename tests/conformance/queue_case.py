"""Replays one case of `queue*.json` against our queues; one record is a slice of one row.

Knows what the words of a case mean; which cases there are is `test_vectors`' business.
"""

import math
from typing import Any

import numpy as np

from lookup_core.operator.element_queue import ElementQueue, Mark, Slice, SlotId
from lookup_core.operator.ordered_queue import OrderedQueue
from lookup_core.operator.segmented_queue import UnorderedQueue

QUEUES: dict[str, type[OrderedQueue | UnorderedQueue]] = {
    "ordered": OrderedQueue,
    "unordered": UnorderedQueue,
}
Words = dict[str, Any]


class QueueCase:
    """One queue, and what its slots stand for in the words of the case."""

    def __init__(self, case: Words) -> None:
        self.mode: str = case["mode"]
        self.queue: ElementQueue = QUEUES[self.mode](case["capacity"])
        self._elements: dict[SlotId, Words] = {}  # {slot: record or watermark}
        self._slots: dict[str, SlotId] = {}  # {record: slot}
        self._results: dict[str, list[Any]] = {}  # {record: values}
        self._errors: dict[str, str] = {}  # {record: error}
        self._failures: list[Words] = []  # in the order of emission

    def replay(self, operations: list[Words]) -> None:
        """Do each operation and compare; KeyError for one that is not known."""
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
        """Complete a record: with a result, with a timeout's result, or with an error."""
        record = next(operation[key] for key in ("complete", "timeout", "fail") if key in operation)
        is_applied = self.queue.complete(self._slots[record], np.ones(1, np.bool_))
        assert is_applied == operation["applied"], where
        if is_applied and "fail" in operation:
            self._errors[record] = operation["error"]
        elif is_applied:
            self._results[record] = operation["result"]

    def emit(self, operation: Words, where: str) -> None:
        """Let everything leave that may."""
        outputs = []
        while (one := self._emitted()) is not None:
            outputs += one
        assert outputs == operation["expected"], where

    def emit_one(self, operation: Words, where: str) -> None:
        """Let one element leave."""
        assert (self._emitted() or []) == operation["expected"], where

    def check(self, operation: Words, where: str) -> None:
        """Compare levels and contents."""
        statistics = self.queue.statistics()
        found = {
            "size": statistics.size,
            "empty": statistics.size == 0,
            "has_completed": statistics.can_emit,
            "pending": self._pending(),
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

    def _pending(self) -> list[Any]:
        segments = self.queue.pending()
        if self.mode == "ordered":
            slots = [slot for segment in segments for slot in segment.completed + segment.open]
            return [self._word(slot) for slot in slots]
        return [
            {
                "completed": [self._word(slot) for slot in segment.completed],
                "open": sorted(map(str, map(self._word, segment.open))),
            }
            for segment in segments
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
