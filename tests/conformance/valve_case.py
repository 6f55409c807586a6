"""Replays one case of `valve*.json` against our valve.

Knows what the words of a case mean; which cases there are is `test_vectors`' business.
"""

from typing import Any

from lookup_core.watermark_valve import ValveOutput, ValveWatermark, WatermarkValve

Words = dict[str, Any]


class ValveCase:
    """One valve with the channels of a case, numbered from 0."""

    def __init__(self, case: Words) -> None:
        self._case = case
        self.valve: WatermarkValve[int] = WatermarkValve()
        for channel in range(case["channels"]):
            self.valve.add(channel)

    def replay(self) -> None:
        """Each event gives its outputs, in order, and nothing else; KeyError for unknown words."""
        checks = self._case.get("state", [])
        steps = zip(self._case["events"], self._case["expected"], strict=True)
        for index, (event, expected) in enumerate(steps):
            outputs = [_word(output) for output in self._on_event(event)]
            assert outputs == expected, f"event {index}: {event}"
            self.valve.check_invariants()
            for check in checks:
                if check["after"] == index:
                    self._check_channel(check)
        if "final" in self._case:
            assert self._final() == self._case["final"]

    def _on_event(self, event: Words) -> list[ValveOutput]:
        if "watermark" in event:
            return self.valve.on_watermark(event["channel"], event["watermark"])
        return self.valve.on_status(event["channel"], is_idle=_IS_IDLE[event["status"]])

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


def _word(output: ValveOutput) -> Words:
    if isinstance(output, ValveWatermark):
        return {"watermark": output.watermark_ms}
    return {"status": _status(is_idle=output.is_idle)}
