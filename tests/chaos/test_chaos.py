"""No record is lost, doubled, wrong or out of order under seeded faults of sidecar and network.

`SIDELOOK_CHAOS_SEED` repeats a run.
"""

import os
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from spark_client.lookup_settings import (
    FailurePolicy,
    LookupSettings,
    OutputMode,
    PassSettings,
)
from spark_client.transport.connection import Connection, Timing
from tests.chaos.checker import Tally, tally
from tests.chaos.fault_script import EVERY_FAULT, Fault, Victim, delay, fault_script, freeze
from tests.chaos.partition_run import PartitionRun, Progress
from tests.chaos.records import DELAY_MS, INTERVAL_MS, SCHEMA, Records, dimension
from tests.chaos.witness import WireOrder, Witness
from tests.end_to_end.sidecars import configured, parquet
from tools.processes.link import Link
from tools.processes.sidecar_process import SidecarFigures
from tools.processes.until import until

SEED = int(os.environ.get("SIDELOOK_CHAOS_SEED") or random.SystemRandom().randrange(2**32))
RECORDS = 360_000  # of one mode: more than a million in all three
PARTITIONS = 4
STALLED_S = 90.0
CAPACITY = 2_000  # low, so that faults occur during the round


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one round."""

    tally: Tally
    struck: list[str]  # the faults that affected lookups
    shared: int  # keys that were answered from shared memory


@pytest.fixture
def share(request: pytest.FixtureRequest) -> str:
    """The setting `cache.share`."""
    return str(getattr(request, "param", "auto"))


@pytest.fixture
def victim(share: str) -> Iterator[Victim]:
    """A running sidecar with a Unix link and a TCP link."""
    with TemporaryDirectory(prefix="sidelook-") as name, ExitStack() as links, ExitStack() as ends:
        folder = Path(name)  # with a short path, as sockets need
        cached = parquet(folder, "rows", dimension(), "key", timeout="60s")
        uncached = {**cached, "cache": {"mode": "none"}}
        cached["cache"] = {"share": share}
        dimensions = {"cached": cached, "uncached": uncached}
        sidecar = configured(folder, dimensions)
        unix = links.enter_context(Link(sidecar.socket, own_path=folder / "link.sock"))
        tcp = links.enter_context(Link(sidecar.socket, own_path=None))
        victim = Victim(sidecar, [unix, tcp], ends, random.Random(SEED))  # noqa: S311 -- a seed is the point
        victim.start()
        yield victim


def settings_of(mode: OutputMode) -> PassSettings:
    """A timeout longer than each fault, and watermarks within the batches."""
    return PassSettings(
        mode=mode,
        capacity=CAPACITY,
        pooled_rows=1,  # each batch has its own watermark
        timeout_s=60.0,
        event_time=SCHEMA.get_field_index("at_ms"),
        watermark_delay_ms=DELAY_MS,
        watermark_interval_ms=INTERVAL_MS,
    )


def run_round(victim: Victim, settings: PassSettings, faults: dict[Fault, int]) -> Round:
    """Process all partitions while the faults occur."""
    progress = Progress()
    records = {
        f"partition {index}": Records.seeded(SEED + index, RECORDS // PARTITIONS)
        for index in range(PARTITIONS)
    }
    witness = Witness({origin: WireOrder.of(each) for origin, each in records.items()})
    connections = [_connection(link, witness) for link in victim.links]
    runs = [
        PartitionRun(
            each,
            origin,
            connections[index % 2],
            "cached" if index < PARTITIONS // 2 else "uncached",
            settings,
            progress,
            LookupSettings(on_timeout=FailurePolicy.NULL),
        )
        for index, (origin, each) in enumerate(records.items())
    ]
    progress.add(running=len(runs))
    victim.is_over = lambda: not progress.running
    threads = [threading.Thread(target=run.run) for run in runs]
    for thread in threads:
        thread.start()
    struck = _strike(victim, progress, witness, faults)
    progress.wait_for(RECORDS, timeout_s=STALLED_S)
    for thread in threads:
        thread.join()
    whole = _whole_tally(runs, settings.mode)
    whole = whole.plus(Tally(watermark_violations=witness.late_lookups))
    shared = witness.from_shared_cache
    print(f"struck: {Counter(struck)}; {witness.cut_off} connections lost; {whole}; {shared=}")  # noqa: T201 -- as above
    return Round(whole, struck, shared)


def _connection(link: Link, witness: Witness) -> Connection:
    return Connection(partial(witness.connect, link.url), url=link.url, timing=Timing())


def _strike(
    victim: Victim, progress: Progress, witness: Witness, faults: dict[Fault, int]
) -> list[str]:
    struck = []
    for emitted, fault in fault_script(faults, victim.chance, RECORDS):
        progress.wait_for(emitted, timeout_s=STALLED_S)
        # After the former fault no client may be connected yet.
        until(lambda: witness.unanswered or victim.is_over())
        began = progress.emitted
        has_struck = fault(victim, witness)
        print(f"{began}: {fault.__name__}, {'struck' if has_struck else 'missed'}")  # noqa: T201 -- as above
        if has_struck:
            struck.append(fault.__name__)
    return struck


def _whole_tally(runs: Sequence[PartitionRun], mode: OutputMode) -> Tally:
    whole = Tally()
    for run in runs:
        whole = whole.plus(tally(run.records, run.emitted(), mode))
    return whole


@pytest.mark.parametrize("share", ["auto", "off"], indirect=True)
@pytest.mark.parametrize("mode", OutputMode)
def test_nothing_is_lost_whatever_dies(victim: Victim, mode: OutputMode, share: str) -> None:
    """Each record leaves once, correct and in the order of the mode; then nothing is held."""
    print(f"SIDELOOK_CHAOS_SEED={SEED}")  # noqa: T201 -- shown when it fails

    shown = run_round(victim, settings_of(mode), EVERY_FAULT)

    assert shown.tally == Tally()
    assert bool(shown.shared) == (share == "auto")
    assert len(shown.struck) >= 20
    assert victim.incarnations == 7
    SidecarFigures(victim.sidecar).seconds_until_at_rest()


@pytest.mark.parametrize("mode", OutputMode)
def test_late_answers_change_nothing(victim: Victim, mode: OutputMode) -> None:
    """A late answer to a record that timed out is not emitted."""
    print(f"SIDELOOK_CHAOS_SEED={SEED}")  # noqa: T201 -- shown when it fails
    settings = replace(settings_of(mode), timeout_s=0.4)

    shown = run_round(victim, settings, {freeze: 3, delay: 3})

    assert shown.tally.timed_out > 0
    assert shown.tally == Tally(timed_out=shown.tally.timed_out)
    assert len(shown.struck) >= 3
    SidecarFigures(victim.sidecar).seconds_until_at_rest()
