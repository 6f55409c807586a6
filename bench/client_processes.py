"""Processes that load a sidecar together, forked from one that has all modules, as Spark's are.

Each keeps its connection between loads. What they ask is `lookup_load`'s.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from types import TracebackType
from typing import Self

from bench.lookup_client import Asking
from bench.lookup_load import LoadSpan, LookupLoad, fill, lookup_load

_START_TIMEOUT_S = 120.0


class ClientProcesses:
    """Groups of client processes, by how many they are; each group is started when it is used."""

    def __init__(self) -> None:
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload([LookupLoad.__module__])
        self._groups: dict[int, ProcessPoolExecutor] = {}  # {processes: group}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Nothing to do before the first load."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the processes."""
        self._stack.close()

    def fill(self, asking: Asking) -> None:
        """Let one process ask for all rows of a dimension."""
        self._group(1).submit(fill, asking).result()

    def run(self, loads: Sequence[LookupLoad]) -> list[LoadSpan]:
        """One load for each process, all at the same time."""
        group = self._group(len(loads))
        # None takes a second load: each waits, busy, until all of them are.
        running = [group.submit(_load_of, load) for load in loads]
        return [each.result() for each in running]

    def _group(self, processes: int) -> ProcessPoolExecutor:
        if processes not in self._groups:
            barrier = self._context.Barrier(processes, timeout=_START_TIMEOUT_S)
            group = ProcessPoolExecutor(
                processes, mp_context=self._context, initializer=_keep, initargs=(barrier,)
            )
            self._groups[processes] = self._stack.enter_context(group)
        return self._groups[processes]


# A barrier cannot be sent to a process that runs already, only be given to one that starts.
_kept: list[threading.Barrier] = []


def _keep(all_ready: threading.Barrier) -> None:
    _kept.append(all_ready)


def _load_of(load: LookupLoad) -> LoadSpan:
    return lookup_load(load, _kept[0])
