"""What each output mode promises of the operator, whatever the order and the parts of answers."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_core.operator.event_time_watermarks import EventTimeWatermarks
from spark_client.column_casts import column_casts
from spark_client.joined_output import joined_output
from spark_client.lookup_operator import LookupOperator, LookupPlan
from spark_client.lookup_settings import (
    FailurePolicy,
    LookupSettings,
    OutputMode,
    WatermarkSettings,
)
from tests.spark_client.shuffling_channel import COLUMNS, ShufflingChannel

RECORDS = pa.schema({"id": pa.int64(), "at": pa.int64(), "number": pa.int64()})
Batches = list[list[tuple[int | None, int]]]  # records' keys and event times


@dataclass(frozen=True, slots=True)
class Scenario:
    """An input, and how it is taken in and answered."""

    batches: Batches
    seed: int = 0
    capacity: int = 1000
    interval_ms: int | None = None  # of watermarks; None: there are none
    silence: float = 0.0

    @property
    def record_batches(self) -> list[pa.RecordBatch]:
        """The input, its records numbered."""
        records = [(len(each), *zip(*each, strict=True)) for each in self.batches]
        starts = np.cumsum([0, *(count for count, _, _ in records)])
        return [
            pa.record_batch(
                [pa.array(ids, pa.int64()), pa.array(times, pa.int64()), pa.array(range(n)[:]).cast(pa.int64())],
                RECORDS,
            )
            for n, ids, times in records
        ] if not len(starts) else []
