"""Cases of growth, one dimension of growth at a time."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.lookup_load import Asking, LoadSpan, LookupLoad


@dataclass(frozen=True, slots=True)
class LoadCase:
    """A point of a line."""

    series: str
    x: int
    loads: tuple[LookupLoad, ...]  # a process each, at the same time


@dataclass(frozen=True, slots=True)
class LoadRound:
    """What one round of a case took."""

    spans: tuple[LoadSpan, ...]  # of the processes
    sidecar_cpu_s: float

    @property
    def keys(self) -> int:
        """How many were looked up."""
        return sum(span.keys for span in self.spans)

    @property
    def uncached_keys(self) -> int:
        """How many of them the cache did not answer."""
        return self.keys - sum(span.hits for span in self.spans)

    @property
    def seconds(self) -> float:
        """From the first question of any process to the last answer of all."""
        return max(span.ended_s for span in self.spans) - min(span.begun_s for span in self.spans)


@dataclass(frozen=True, slots=True)
class CaseFigures:
    """Medians of a case's rounds."""

    case: LoadCase
    rounds: Sequence[LoadRound]

    @property
    def lookups_per_second(self) -> float:
        """Keys looked up, by all processes together."""
        return statistics.median(each.keys / each.seconds for each in self.rounds)

    @property
    def bytes_per_second(self) -> float:
        """Of rows in the answers, as Arrow counts them."""
        return statistics.median(
            sum(span.row_bytes for span in each.spans) / each.seconds for each in self.rounds
        )

    @property
    def client_ns(self) -> float:
        """Processor time of all clients for a lookup."""
        return statistics.median(
            sum(span.cpu_s for span in each.spans) / each.keys * 1e9 for each in self.rounds
        )

    @property
    def sidecar_ns(self) -> float:
        """Processor time of the sidecar for a lookup."""
        return statistics.median(each.sidecar_cpu_s / each.keys * 1e9 for each in self.rounds)


BATCH_KEYS = 5_000
CHANNELS = (1, 8, 64)
LEAST_BATCHES = 10  # of a channel: credit for more than a few keys comes with its first answers
DIMENSIONS = (1, 2, 4)
BATCHES = (100, 1_000, 10_000, 100_000)
MOST_BATCHES = 3_000  # so that small ones do not take all the time
COLUMNS = (3, 10, 25, 50)
CACHED_ROWS = (10_000, 100_000, 1_000_000, 10_000_000)
ROWS = 200_000  # of a dimension, unless it is the rows that grow
WIDE_ROWS = 20_000

ALIKE = tuple(f"customers_{letter}" for letter in "abcd")
WIDE = "wide"
PROCESS_EACH = "a process for each channel"
ONE_PROCESS = "all channels in one process"


@dataclass(frozen=True, slots=True)
class Growth:
    """One thing that grows."""

    name: str
    title: str
    x_label: str
    cases: Sequence[LoadCase]
    is_log_x: bool = False


def small_growths(endpoint: str, keys: int) -> list[Growth]:
    """What a sidecar with default limits is asked for."""
    return [
        _channels(endpoint, keys),
        _dimensions(endpoint, keys),
        _batches(endpoint, keys),
        _columns(endpoint, keys),
    ]


def cached_rows(endpoint: str, keys: int, *, largest: int) -> Growth:
    """Caches of different sizes, of a sidecar that has memory for them."""
    sizes = [rows for rows in CACHED_ROWS if rows <= largest]
    cases = [
        LoadCase("one channel", rows, (_load(_customers(endpoint, rows_name(rows), rows), keys),))
        for rows in sizes
    ]
    return Growth("rows", "Rows in the cache", "cached rows", cases, is_log_x=True)


def rows_name(rows: int) -> str:
    """The dimension with so many rows."""
    return f"customers_{rows}"


def column_names(count: int) -> tuple[str, ...]:
    """The first columns of the wide dimension."""
    return tuple(f"column_{number}" for number in range(count))


def _channels(endpoint: str, keys: int) -> Growth:
    keys = max(keys, CHANNELS[-1] * LEAST_BATCHES * BATCH_KEYS)
    cases = []
    for channels in CHANNELS:
        loads = [
            _load(_customers(endpoint, ALIKE[0], ROWS, seed=seed), keys // channels)
            for seed in range(channels)
        ]
        cases.append(LoadCase(PROCESS_EACH, channels, tuple(loads)))
        together = tuple(asking for load in loads for asking in load.channels)
        cases.append(LoadCase(ONE_PROCESS, channels, (LookupLoad(together, loads[0].batches),)))
    return Growth("channels", "Channels", "channels", cases, is_log_x=True)


def _dimensions(endpoint: str, keys: int) -> Growth:
    """Four channels throughout, so that nothing but the number of dimensions differs."""
    cases = []
    for dimensions in DIMENSIONS:
        askings = [
            _customers(endpoint, ALIKE[number % dimensions], ROWS, seed=number)
            for number in range(len(ALIKE))
        ]
        loads = tuple(_load(asking, keys // len(askings)) for asking in askings)
        cases.append(LoadCase("four channels, a process each", dimensions, loads))
    return Growth("dimensions", "Dimensions", "dimensions", cases)


def _batches(endpoint: str, keys: int) -> Growth:
    cases = [
        LoadCase(
            "one channel",
            size,
            (
                _load(
                    _customers(endpoint, ALIKE[0], ROWS, batch_keys=size),
                    min(keys, MOST_BATCHES * size),
                ),
            ),
        )
        for size in BATCHES
    ]
    return Growth("batches", "Keys of a batch", "keys of a batch", cases, is_log_x=True)


def _columns(endpoint: str, keys: int) -> Growth:
    cases = [
        LoadCase(
            "one channel",
            count,
            (_load(Asking(endpoint, WIDE, WIDE_ROWS, BATCH_KEYS, 0, column_names(count)), keys),),
        )
        for count in COLUMNS
    ]
    return Growth("columns", "Columns of a row", "columns", cases)


def _customers(
    endpoint: str, dimension: str, rows: int, *, batch_keys: int = BATCH_KEYS, seed: int = 0
) -> Asking:
    return Asking(endpoint, dimension, rows, batch_keys, seed, ("name", "segment", "tier"))


def _load(asking: Asking, keys: int) -> LookupLoad:
    return LookupLoad((asking,), max(keys // asking.keys, 1))
