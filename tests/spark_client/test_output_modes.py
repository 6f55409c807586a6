"""What each output mode promises of the operator, whatever the order and the parts of answers."""

from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_core.operator.event_time_watermarks import EventTimeWatermarks
from spark_client.lookup_operator import LookupOperator, LookupPlan
from spark_client.lookup_settings import (
    FailurePolicy,
    LookupSettings,
    OutputMode,
    WatermarkSettings,
)
from spark_client.output_columns import column_casts, joined_output
from tests.spark_client.shuffling_channel import COLUMNS, ShufflingChannel

RECORDS = pa.schema({"id": pa.int64(), "at": pa.int64(), "number": pa.int64()})
KEY = pa.schema([RECORDS.field("id")])


@dataclass(frozen=True, slots=True)
class Scenario:
    """An input, and how it is taken in and answered."""

    batches: list[list[tuple[int | None, int]]]  # records' keys and event times
    seed: int = 0
    capacity: int = 1000
    interval_ms: int | None = None  # between watermarks; None: there are none
    silence: float = 0.0

    def input(self) -> list[pa.RecordBatch]:
        """The records, numbered over all batches."""
        numbers = count()
        numbered = [[(*record, next(numbers)) for record in each] for each in self.batches]
        return [
            pa.RecordBatch.from_pylist(
                [dict(zip(RECORDS.names, record, strict=True)) for record in each], RECORDS
            )
            for each in numbered
        ]

    def segments(self) -> list[int]:
        """How many watermarks stand before each record."""
        watermarks = EventTimeWatermarks(0, self.interval_ms)
        found: list[int] = []
        passed = 0
        for each in self.batches:
            times = np.array([at for _, at in each], np.int64)
            cuts = [] if self.interval_ms is None else watermarks.on_batch(times)
            found += [passed + sum(cut.rows <= row for cut in cuts) for row in range(len(each))]
            passed += len(cuts)
        return found


def enriched(mode: OutputMode, scenario: Scenario) -> list[dict[str, Any]]:
    """The records as they leave."""
    channel = ShufflingChannel(scenario.seed, silence=scenario.silence)
    interval_ms = scenario.interval_ms
    plan = LookupPlan(
        "d",
        (0,),
        KEY,
        column_casts(COLUMNS, COLUMNS, dimension="d"),
        joined_output(RECORDS, COLUMNS, prefix="", status_column="_s", is_inner=False),
        LookupSettings(
            mode,
            scenario.capacity,
            on_timeout=FailurePolicy.NULL,
            watermarks=None if interval_ms is None else WatermarkSettings(1, 0, interval_ms),
        ),
    )
    operator = LookupOperator(plan, channel, clock=lambda: channel.now_s)
    outputs = [output for each in scenario.input() for output in operator.take_in(each)]
    return [row for output in [*outputs, *operator.drain()] for row in output.to_pylist()]


def numbers_by_key(rows: list[dict[str, Any]]) -> dict[int | None, list[int]]:
    """The records of each key, as they left."""
    found: dict[int | None, list[int]] = {}
    for row in rows:
        found.setdefault(row["id"], []).append(row["number"])
    return found


def keeps_keys_in_order(rows: list[dict[str, Any]]) -> bool:
    """Whether of any two records with the same key the earlier one left first."""
    return all(numbers == sorted(numbers) for numbers in numbers_by_key(rows).values())


few_keys = st.one_of(st.none(), st.integers(0, 3))
scenarios = st.builds(
    Scenario,
    batches=st.lists(
        st.lists(st.tuples(few_keys, st.integers(0, 40)), min_size=1, max_size=20),
        min_size=1,
        max_size=8,
    ),
    seed=st.integers(0, 2**32),
    capacity=st.integers(1, 40),
    interval_ms=st.sampled_from([None, None, 1, 7, 1000]),
    silence=st.sampled_from([0.0, 0.1, 0.5]),
)


@pytest.mark.parametrize("mode", OutputMode)
@settings(max_examples=200)
@given(scenario=scenarios)
def test_records_leave_as_the_mode_promises(mode: OutputMode, scenario: Scenario) -> None:
    """Each once, behind what stood before its watermark, and in the order of the mode."""
    rows = enriched(mode, scenario)

    numbers = [row["number"] for row in rows]
    segments = scenario.segments()
    left = [segments[number] for number in numbers]
    assert sorted(numbers) == list(range(len(segments)))
    assert left == sorted(left)
    assert mode is not OutputMode.ORDERED or numbers == sorted(numbers)
    assert mode is OutputMode.UNORDERED or keeps_keys_in_order(rows)


@pytest.mark.parametrize("mode", OutputMode)
@settings(max_examples=100)
@given(scenario=scenarios)
def test_records_get_what_was_answered(mode: OutputMode, scenario: Scenario) -> None:
    """A record has its key's row, or none if its time was up; late answers change nothing."""
    for row in enriched(mode, scenario):
        is_late = row["_s"]["outcome"] == "timeout"

        assert row["value"] == (None if is_late else row["id"])
        assert scenario.silence or not is_late


SHARED_KEYS: list[list[tuple[int | None, int]]] = [[(key, 0) for key in range(4)]] * 20


def test_answers_do_come_out_of_order() -> None:
    """What the other modes keep, the unordered one does not: the answers of this test overtake."""
    runs = [Scenario(SHARED_KEYS, seed) for seed in range(5)]

    assert not any(keeps_keys_in_order(enriched(OutputMode.UNORDERED, run)) for run in runs)
    assert all(keeps_keys_in_order(enriched(OutputMode.KEY_ORDERED, run)) for run in runs)


def test_keys_do_not_wait_for_others() -> None:
    """In key order records of different keys overtake each other."""
    rows = enriched(OutputMode.KEY_ORDERED, Scenario(SHARED_KEYS, seed=1))

    numbers = [row["number"] for row in rows]
    assert numbers != sorted(numbers)
    assert keeps_keys_in_order(rows)
