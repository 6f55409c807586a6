"""Model of the operator in its three modes: answers in any order, in any parts, or too late."""

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_core.answer import Answer, Outcome
from lookup_core.operator.event_time_watermarks import EventTimeWatermarks
from lookup_core.protocol.backlog import ChannelAnswer
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from spark_client.fake_sidecar import Behaviour, FakeDimension, FakeSidecar
from spark_client.lookup_operator import LookupOperator, LookupPlan
from spark_client.lookup_settings import (
    FailurePolicy,
    LookupSettings,
    OutputMode,
)
from spark_client.output_columns import column_casts, joined_output
from tests.spark_client.builders import Partition

COLUMNS = pa.schema({"value": pa.int64()})
RECORDS = pa.schema({"id": pa.int64(), "at": pa.int64(), "number": pa.int64()})
KEY = pa.schema([RECORDS.field("id")])
MOST_PARTS = 3  # that come at once
MOST_KEYS = 3  # of one part


class ShufflingChannel:
    """A `LookupChannel` whose keys are their own values; a seed decides when answers come."""

    columns = COLUMNS
    versions = None

    def __init__(self, seed: int, *, silence: float) -> None:
        """`silence`: the probability that no answer comes during a wait."""
        self.now_s = 0.0
        self._chance = random.Random(seed)  # noqa: S311 -- repeatable
        self._silence = silence
        self._keys: dict[QuestionId, pa.RecordBatch] = {}
        self._open: dict[QuestionId, list[int]] = {}  # {question: keys without an answer}

    def look_up(self, keys: SentKeys) -> None:
        """See `LookupChannel`."""
        self._keys[keys.question] = keys.keys
        self._open[keys.question] = list(range(keys.count))

    def mark(self, watermark_ms: int) -> None:
        """See `LookupChannel`."""

    def answers(self, timeout_s: float | None) -> Sequence[ChannelAnswer]:
        """See `LookupChannel`."""
        if timeout_s and self._chance.random() < self._silence:
            self.now_s += timeout_s
            return []
        parts = self._chance.randint(0 if timeout_s == 0 else 1, MOST_PARTS)
        return [self._part() for _ in range(parts) if self._open]

    def abandon(self, question: QuestionId) -> None:
        """See `LookupChannel`; the answers still come, too late."""

    def awaiting_input(self) -> AbstractContextManager[None]:
        """See `LookupChannel`."""
        return nullcontext()

    def close(self) -> None:
        """See `LookupChannel`."""

    def _part(self) -> ChannelAnswer:
        question = self._chance.choice(list(self._open))
        still_open = self._open.pop(question)
        self._chance.shuffle(still_open)
        chosen, left = still_open[:MOST_KEYS], still_open[MOST_KEYS:]
        if left:
            self._open[question] = left
        rows = pa.record_batch([self._keys[question].column(0).take(pa.array(chosen))], COLUMNS)
        outcomes = np.full(len(chosen), Outcome.HIT, np.uint8)
        ages_ms = np.zeros(len(chosen), np.uint32)
        return ChannelAnswer(question, Answer(np.array(chosen, np.int32), outcomes, ages_ms, rows))


@dataclass(frozen=True, slots=True)
class Scenario:
    """An input, the bounds of the operator, and the order of the answers."""

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
    """The records in the order in which they leave."""
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
            event_time=None if interval_ms is None else 1,
            watermark_interval_ms=interval_ms,
        ),
    )
    operator = LookupOperator(plan, channel, clock=lambda: channel.now_s)
    outputs = [output for each in scenario.input() for output in operator.take_in(each)]
    return [row for output in [*outputs, *operator.drain()] for row in output.to_pylist()]


def keeps_keys_in_order(rows: list[dict[str, Any]]) -> bool:
    """Whether of any two records with the same key the earlier one left first."""
    latest: dict[int | None, int] = {}
    for row in rows:
        if latest.get(row["id"], -1) > row["number"]:
            return False
        latest[row["id"]] = row["number"]
    return True


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
    """Each record leaves once, behind its watermarks, in the mode's order, with its key's row."""
    rows = enriched(mode, scenario)

    numbers = [row["number"] for row in rows]
    segments = scenario.segments()
    left = [segments[number] for number in numbers]
    late = [row["_s"]["outcome"] == "timeout" for row in rows]
    assert sorted(numbers) == list(range(len(segments)))
    assert left == sorted(left)
    assert mode is not OutputMode.ORDERED or numbers == sorted(numbers)
    assert mode is OutputMode.UNORDERED or keeps_keys_in_order(rows)
    assert [row["value"] for row in rows] == [
        None if is_late else row["id"] for row, is_late in zip(rows, late, strict=True)
    ]
    assert scenario.silence or not any(late)


texts = st.text(max_size=4)


@settings(max_examples=60)
@given(
    records=st.lists(
        st.tuples(st.one_of(st.none(), texts), st.integers(0, 3)), min_size=1, max_size=40
    ),
    rows=st.dictionaries(st.tuples(texts, st.integers(0, 3)), st.one_of(st.none(), texts)),
    mode=st.sampled_from(OutputMode),
    behaviour=st.builds(
        Behaviour,
        credit_records=st.integers(1, 20),
        part_size=st.one_of(st.none(), st.integers(1, 3)),
        seed=st.one_of(st.none(), st.integers(0, 9)),
    ),
    capacity=st.integers(1, 30),
)
def test_output_equals_a_plain_join(
    records: list[tuple[str | None, int]],
    rows: dict[tuple[str, int], str | None],
    mode: OutputMode,
    behaviour: Behaviour,
    capacity: int,
) -> None:
    """Over a connection, with composite keys and any credit: the rows of a left join."""
    table = pa.table(
        {
            "text": pa.array([text for text, _ in rows], pa.utf8()),
            "number": pa.array([number for _, number in rows], pa.int64()),
            "value": pa.array(list(rows.values()), pa.utf8()),
        }
    )
    partition = Partition(
        FakeSidecar({"d": FakeDimension(table, ("text", "number"))}, behaviour),
        LookupSettings(mode, capacity),
        dimension="d",
        columns=("value",),
        keys=("text", "number"),
    )
    columns = [pa.array([text for text, _ in records], pa.utf8()), [each[1] for each in records]]

    found = partition.rows(pa.record_batch(columns, ["text", "number"]))

    expected = [
        {
            "text": text,
            "number": number,
            "value": None if text is None else rows.get((text, number)),
        }
        for text, number in records
    ]
    if mode is OutputMode.ORDERED:
        assert found == expected
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
