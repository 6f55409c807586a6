"""Model of the operator in its three modes: answers in any order, in any parts, or too late."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_core.answer import Answer, Outcome
from lookup_core.cache.cached_answers import CachedAnswers
from lookup_core.errors import ErrorCode
from lookup_core.event_time.record_watermarks import EventTimeWatermarks
from lookup_core.protocol.backlog import ChannelAnswer
from lookup_core.protocol.sent_lookups import RunId, SentKeys
from spark_client.lookup_settings import (
    FailurePolicy,
    JoinType,
    KeyColumn,
    LookupSettings,
    OutputMode,
    PassSettings,
)
from spark_client.testing.served_dimension import ServedDimension
from spark_client.transport.connection import ChannelSession
from spark_client.worker.lookup_operator import LookupOperator
from spark_client.worker.lookup_plan import LookupPlan
from spark_client.worker.output_columns import AddedPart, column_casts, joined_output
from tests.spark_client.builders import Lookup, Partition, PulledInput, SteppedWakeUp
from tests.spark_client.memory_transport import Behaviour, ReachableSidecar

COLUMNS = pa.schema({"value": pa.int64()})
RECORDS = pa.schema({"id": pa.int64(), "at": pa.int64(), "number": pa.int64()})
KEY = pa.schema([RECORDS.field("id")])
MOST_PARTS = 3  # that come at once
MOST_KEYS = 3  # of one part


class Chance(SteppedWakeUp):
    """The order of events, by a seed; a wait takes its time, or ends with some answers."""

    def __init__(self, seed: int, *, silence: float) -> None:
        """`silence`: the probability that no answer comes during a wait."""
        super().__init__()
        self.random = random.Random(seed)  # noqa: S311 -- repeatable
        self.has_answers = False
        self._silence = silence

    def wait_and_clear(self, timeout_s: float) -> None:
        """See `WakeUp`."""
        if self.random.random() < self._silence:
            super().wait_and_clear(timeout_s)
        else:
            self.has_answers = True


class ShufflingChannel(ChannelSession):
    """A `ChannelSession` whose keys are their own values, or one more in a later lookup."""

    def __init__(self, chance: Chance, *, add: int = 0) -> None:
        """The value of a key is the key and `add`."""
        self._chance = chance
        self._add = add
        self._keys: dict[tuple[RunId, int], int | None] = {}  # {run, position: key}
        self._open: dict[RunId, list[int]] = {}  # {run: keys without an answer}

    def explanation(self, code: ErrorCode) -> str:
        """See `ChannelSession`; nothing is known."""
        del code
        return ""

    def cached(self, keys: pa.RecordBatch) -> CachedAnswers | None:
        """See `ChannelSession`; some of the answers, at random."""
        values, chance = keys.column(0).to_pylist(), self._chance.random
        positions = list(range(len(values)))
        chance.shuffle(positions)
        known = positions[: chance.choice([0, len(values) // 2, len(values)])]
        parts = known[: len(known) // 2], known[len(known) // 2 :]
        answers = [self._answer(part, [values[at] for at in part]) for part in parts if part]
        return chance.choice([None, CachedAnswers(answers, np.zeros(0, np.int32))])

    def look_up(self, keys: SentKeys) -> None:
        """See `ChannelSession`."""
        self.send(keys)

    def send(self, keys: SentKeys) -> None:
        """See `ChannelSession`."""
        for position, key in enumerate(keys.keys.column(0).to_pylist(), keys.start):
            self._keys[keys.run, position] = key
            self._open.setdefault(keys.run, []).append(position)

    def mark(self, watermark_ms: int) -> None:
        """See `ChannelSession`."""

    def answers(self, timeout_s: float | None) -> Sequence[ChannelAnswer]:
        """See `ChannelSession`."""
        assert timeout_s == 0
        least, self._chance.has_answers = int(self._chance.has_answers), False
        parts = self._chance.random.randint(least, MOST_PARTS)
        return [self._part() for _ in range(parts) if self._open]

    def abandon(self, run: RunId) -> None:
        """See `ChannelSession`; the answers still come, too late."""

    def report_idle(self) -> None:
        """See `ChannelSession`."""

    def close(self) -> None:
        """See `ChannelSession`."""

    def _part(self) -> ChannelAnswer:
        run = self._chance.random.choice(list(self._open))
        still_open = self._open.pop(run)
        self._chance.random.shuffle(still_open)
        chosen, left = still_open[:MOST_KEYS], still_open[MOST_KEYS:]
        if left:
            self._open[run] = left
        keys = [self._keys[run, position] for position in chosen]
        return ChannelAnswer(run, self._answer(chosen, keys))

    def _answer(self, positions: Sequence[int], keys: Sequence[int | None]) -> Answer:
        values = [None if key is None else key + self._add for key in keys]
        rows = pa.record_batch([pa.array(values, pa.int64())], COLUMNS)
        outcomes = np.full(len(positions), Outcome.HIT, np.uint8)
        ages_ms = np.zeros(len(positions), np.uint32)
        return Answer(np.array(positions, np.int32), outcomes, ages_ms, rows)


# Where the key of each lookup comes from: the records, or the value of another lookup.
DIRECT, AFTER_FIRST, AFTER_SECOND = KeyColumn(0), KeyColumn(0, 0), KeyColumn(0, 1)


@dataclass(frozen=True, slots=True)
class Scenario:
    """An input, the bounds of the operator, and the order of the answers."""

    batches: list[list[tuple[int | None, int]]]  # records' keys and event times
    seed: int = 0
    capacity: int = 1000
    interval_ms: int | None = None  # between watermarks; None: there are none
    silence: float = 0.0
    keys: tuple[KeyColumn, ...] = (DIRECT,)  # of each lookup
    default: int | None = None  # the value of the default row; None: there is none
    policy: FailurePolicy = FailurePolicy.NULL  # of lookups that time out

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
    chance = Chance(scenario.seed, silence=scenario.silence)
    interval_ms = scenario.interval_ms
    casts = column_casts(COLUMNS, COLUMNS, dimension="d")
    lookup, default = LookupSettings(on_timeout=scenario.policy), None
    if scenario.default is not None:
        default = pa.record_batch([[scenario.default]], schema=COLUMNS)
    plans = [LookupPlan("d", (key,), KEY, casts, lookup, default=default) for key in scenario.keys]
    parts = [
        AddedPart(COLUMNS, prefix=f"{number}_", status_column=f"{number}_s")
        for number in range(len(plans))
    ]
    settings = PassSettings(
        mode,
        scenario.capacity,
        pooled_rows=1,  # each batch has its own watermark
        event_time=None if interval_ms is None else 1,
        watermark_interval_ms=interval_ms,
    )
    operator = LookupOperator(
        plans,
        [ShufflingChannel(chance, add=number) for number in range(len(plans))],
        joined_output(RECORDS, parts),
        settings=settings,
        wake_up=chance,
        clock=chance.clock,
    )
    pauses = chance.random.choice([0, 0, 1, 3])
    batches = [each for batch in scenario.input() for each in [batch, *[None] * pauses]]
    rows = []
    for output in operator.enriched(PulledInput(batches)):
        rows += output.to_pylist()
        chance.now_s += chance.random.choice([0.0, 0.0, 1e6])  # the consumer may take long
    return rows


def expected(scenario: Scenario, lookup: int, row: dict[str, Any]) -> tuple[int | None, str]:
    """The value and the outcome of a lookup in a row of the output."""
    source = scenario.keys[lookup].lookup
    key = row["id"] if source is None else row[f"{source}_value"]
    if source is not None and key is None:  # also without an answer in time
        return scenario.default, "missing" if scenario.default is None else "default"
    if row[f"{lookup}_s"]["outcome"] == "timeout" and scenario.silence:
        return scenario.default if scenario.policy is FailurePolicy.DEFAULT else None, "timeout"
    return None if key is None else key + lookup, "hit"


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
    keys=st.sampled_from(
        [
            (DIRECT,),
            (DIRECT, DIRECT),
            (DIRECT, AFTER_FIRST),
            (DIRECT, AFTER_FIRST, AFTER_SECOND),
            (DIRECT, AFTER_FIRST, AFTER_FIRST, DIRECT),
        ]
    ),
)
defaults = st.sampled_from(
    [(None, FailurePolicy.NULL), (9, FailurePolicy.NULL), (9, FailurePolicy.DEFAULT)]
)


@pytest.mark.parametrize("mode", OutputMode)
@settings(max_examples=200)
@given(scenario=scenarios, default=defaults)
def test_records_leave_as_the_mode_promises(
    mode: OutputMode, scenario: Scenario, default: tuple[int | None, FailurePolicy]
) -> None:
    """Each record leaves once, behind its watermarks, in the mode's order, with its key's row."""
    scenario = replace(scenario, default=default[0], policy=default[1])
    rows = enriched(mode, scenario)

    numbers = [row["number"] for row in rows]
    segments = scenario.segments()
    left = [segments[number] for number in numbers]
    assert sorted(numbers) == list(range(len(segments)))
    assert left == sorted(left)
    assert mode is not OutputMode.ORDERED or numbers == sorted(numbers)
    assert mode is OutputMode.UNORDERED or keeps_keys_in_order(rows)
    for lookup in range(len(scenario.keys)):
        found = [(row[f"{lookup}_value"], row[f"{lookup}_s"]["outcome"]) for row in rows]
        assert found == [expected(scenario, lookup, row) for row in rows]


values = st.lists(st.one_of(st.none(), st.text(max_size=2)), max_size=3)


@settings(max_examples=60)
@given(
    records=st.lists(st.tuples(few_keys, few_keys), min_size=1, max_size=20),
    tables=st.lists(st.dictionaries(st.integers(0, 3), values), min_size=2, max_size=2),
    joins=st.tuples(*[st.sampled_from([JoinType.LEFT, JoinType.INNER])] * 2),
    part_size=st.one_of(st.none(), st.integers(1, 3)),
    max_bytes=st.integers(1, 500),
)
def test_expanded_output_equals_a_plain_join(
    records: list[tuple[int | None, int | None]],
    tables: list[dict[int, list[str | None]]],
    joins: tuple[JoinType, JoinType],
    part_size: int | None,
    max_bytes: int,
) -> None:
    """With two lookups that expand: the rows of two joins, in the order of records and rows."""
    dimensions = {
        f"d{number}": ServedDimension(
            pa.table(
                {
                    "k": pa.array([key for key, found in rows.items() for _ in found], pa.int64()),
                    "v": pa.array([each for found in rows.values() for each in found], pa.utf8()),
                }
            ),
            ("k",),
            has_all_rows=True,
        )
        for number, rows in enumerate(tables)
    }
    lookups = tuple(
        Lookup(f"d{number}", ("v",), (f"k{number}",), how=how, prefix=f"{number}_", expands=True)
        for number, how in enumerate(joins)
    )
    partition = Partition(
        ReachableSidecar(dimensions, Behaviour(part_size=part_size)),
        PassSettings(max_bytes=max_bytes, capacity=7),
        lookups,
    )
    keys = [pa.array([record[number] for record in records], pa.int64()) for number in (0, 1)]

    found = partition.rows(pa.record_batch(keys, ["k0", "k1"]))

    matches = [
        [
            (rows.get(key) if key is not None else None) or ([None] if how is JoinType.LEFT else [])
            for key, rows, how in zip(record, tables, joins, strict=True)
        ]
        for record in records
    ]
    assert [tuple(row.values()) for row in found] == [
        (*record, first, second)
        for record, (firsts, seconds) in zip(records, matches, strict=True)
        for first in firsts
        for second in seconds
    ]


texts = st.text(max_size=4)


@settings(max_examples=120)
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
    losses=st.lists(st.integers(1, 40), max_size=12),
)
def test_output_equals_a_plain_join(
    records: list[tuple[str | None, int]],
    rows: dict[tuple[str, int], str | None],
    mode: OutputMode,
    behaviour: Behaviour,
    capacity: int,
    losses: list[int],
) -> None:
    """Over connections that are lost at any message, with any credit: the rows of left joins.

    The key of the second lookup is the row of the first one.
    """
    table = pa.table(
        {
            "text": pa.array([text for text, _ in rows], pa.utf8()),
            "number": pa.array([number for _, number in rows], pa.int64()),
            "value": pa.array(list(rows.values()), pa.utf8()),
        }
    )
    labels = {value: f"<{value}>" for value in rows.values() if value}
    labelled = pa.table(
        {
            "value": pa.array([*labels], pa.utf8()),
            "label": pa.array([*labels.values()], pa.utf8()),
        }
    )
    dimensions = {
        "d": ServedDimension(table, ("text", "number")),
        "e": ServedDimension(labelled, ("value",)),
    }
    sidecar = ReachableSidecar(dimensions, behaviour)
    sidecar.messages_until_loss = losses
    lookups = (Lookup("d", ("value",), ("text", "number")), Lookup("e", ("label",), ("value",)))
    partition = Partition(sidecar, PassSettings(mode, capacity), lookups)
    columns = [pa.array([text for text, _ in records], pa.utf8()), [each[1] for each in records]]

    found = partition.rows(pa.record_batch(columns, ["text", "number"]))

    values = [None if text is None else rows.get((text, number)) for text, number in records]
    expected = [
        {"text": text, "number": number, "value": value, "label": labels.get(value or "")}
        for (text, number), value in zip(records, values, strict=True)
    ]
    if mode is OutputMode.ORDERED:
        assert found == expected
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
