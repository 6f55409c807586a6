"""Growth cases: loads in which one quantity grows, and the figures of each case."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.lookup_load import LoadSpan, LookupClient, LookupLoad

BATCH_KEYS = 5_000
CHANNELS = (1, 8, 64)
LEAST_BATCHES = 10  # per channel: credit for many keys arrives with the first answers
DIMENSIONS = (1, 2, 4)
BATCHES = (100, 1_000, 10_000, 100_000)
MOST_BATCHES = 3_000  # bounds the time that small batches take
COLUMNS = (3, 10, 25, 50)
CACHED_ROWS = (10_000, 100_000, 1_000_000, 10_000_000)
ROWS = 200_000  # per dimension, unless the rows grow
WIDE_ROWS = 20_000

ALIKE = tuple(f"customers_{letter}" for letter in "abcd")
WIDE = "wide"
PROCESS_EACH = "a process for each channel"
ONE_PROCESS = "all channels in one process"


@dataclass(frozen=True, slots=True)
class LoadCase:
    """A point of a series."""

    series: str
    x: int
    loads: tuple[LookupLoad, ...]  # one process each, at the same time


@dataclass(frozen=True, slots=True)
class LoadRound:
    """Measurements of one round of a case."""

    spans: tuple[LoadSpan, ...]  # one per process
    sidecar_cpu_s: float

    @property
    def keys(self) -> int:
        """Keys looked up."""
        return sum(span.keys for span in self.spans)

    @property
    def uncached_keys(self) -> int:
        """Keys not answered from the cache."""
        return self.keys - sum(span.hits for span in self.spans)

    @property
    def seconds(self) -> float:
        """Time from the first lookup of any process to the last answer of all."""
        return max(span.ended_s for span in self.spans) - min(span.begun_s for span in self.spans)


@dataclass(frozen=True, slots=True)
class CaseFigures:
    """Medians of the rounds of a case."""

    case: LoadCase
    rounds: Sequence[LoadRound]

    @property
    def lookups_per_second(self) -> float:
        """Keys looked up per second by all processes together."""
        return statistics.median(each.keys / each.seconds for each in self.rounds)

    @property
    def bytes_per_second(self) -> float:
        """Arrow bytes of the rows in the answers."""
        return statistics.median(
            sum(span.row_bytes for span in each.spans) / each.seconds for each in self.rounds
        )

    @property
    def client_ns(self) -> float:
        """Processor time of all clients per lookup."""
        return statistics.median(
            sum(span.cpu_s for span in each.spans) / each.keys * 1e9 for each in self.rounds
        )

    @property
    def sidecar_ns(self) -> float:
        """Processor time of the sidecar per lookup."""
        return statistics.median(each.sidecar_cpu_s / each.keys * 1e9 for each in self.rounds)


@dataclass(frozen=True, slots=True)
class Growth:
    """One quantity that grows."""

    name: str
    title: str
    x_label: str
    cases: Sequence[LoadCase]
    is_log_x: bool = False


def small_growths(endpoint: str, keys: int) -> list[Growth]:
    """Return the growths that fit into a sidecar with default limits."""
    return [
        _channels(endpoint, keys),
        _dimensions(endpoint, keys),
        _batches(endpoint, keys),
        _columns(endpoint, keys),
    ]


def cached_rows(endpoint: str, keys: int, *, largest: int) -> Growth:
    """Return the growth of the cache up to `largest` rows."""
    cases = [
        _one_channel(rows, _customers(endpoint, rows_name(rows), rows), keys)
        for rows in CACHED_ROWS
        if rows <= largest
    ]
    return Growth("rows", "Rows in the cache", "cached rows", cases, is_log_x=True)


def rows_name(rows: int) -> str:
    """Return the name of the dimension with this number of rows."""
    return f"customers_{rows}"


def column_names(count: int) -> tuple[str, ...]:
    """Return the first columns of the wide dimension."""
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
        together = tuple(client for load in loads for client in load.clients)
        cases.append(LoadCase(ONE_PROCESS, channels, (LookupLoad(together, loads[0].batches),)))
    return Growth("channels", "Channels", "channels", cases, is_log_x=True)


def _dimensions(endpoint: str, keys: int) -> Growth:
    """Use four channels in each case, so that only the number of dimensions differs."""
    cases = []
    for dimensions in DIMENSIONS:
        clients = [
            _customers(endpoint, ALIKE[number % dimensions], ROWS, seed=number)
            for number in range(len(ALIKE))
        ]
        loads = tuple(_load(client, keys // len(clients)) for client in clients)
        cases.append(LoadCase("four channels, a process each", dimensions, loads))
    return Growth("dimensions", "Dimensions", "dimensions", cases)


def _batches(endpoint: str, keys: int) -> Growth:
    cases = [
        _one_channel(
            size,
            _customers(endpoint, ALIKE[0], ROWS, batch_keys=size),
            min(keys, MOST_BATCHES * size),
        )
        for size in BATCHES
    ]
    return Growth("batches", "Keys per batch", "keys per batch", cases, is_log_x=True)


def _columns(endpoint: str, keys: int) -> Growth:
    cases = [
        _one_channel(
            count,
            LookupClient(endpoint, WIDE, WIDE_ROWS, BATCH_KEYS, 0, column_names(count)),
            keys,
        )
        for count in COLUMNS
    ]
    return Growth("columns", "Columns per row", "columns", cases)


def _one_channel(x: int, client: LookupClient, keys: int) -> LoadCase:
    return LoadCase("one channel", x, (_load(client, keys),))


def _customers(
    endpoint: str, dimension: str, rows: int, *, batch_keys: int = BATCH_KEYS, seed: int = 0
) -> LookupClient:
    return LookupClient(endpoint, dimension, rows, batch_keys, seed, ("name", "segment", "tier"))


def _load(client: LookupClient, keys: int) -> LookupLoad:
    return LookupLoad((client,), max(keys // client.batch_keys, 1))
