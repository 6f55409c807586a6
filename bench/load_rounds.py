"""Rounds of cases in turn against one sidecar, so that a machine that drifts does so for all.

The first round warms up and is not counted.
"""

from collections.abc import Sequence

import psutil

from bench.client_processes import ClientProcesses
from bench.listener import cpu_s, listener
from bench.load_case import CaseFigures, LoadCase, LoadRound
from demo.sidecar import Sidecar


def load_rounds(
    cases: Sequence[LoadCase], sidecar: Sidecar, clients: ClientProcesses, *, rounds: int
) -> list[CaseFigures]:
    """The figures of each case, in order."""
    process = listener(sidecar.socket)
    measured: list[list[LoadRound]] = [[] for _ in cases]
    for number in range(rounds + 1):
        for case, counted in zip(cases, measured, strict=True):
            done = _run(case, process, clients)
            if number:
                counted.append(done)
    return [CaseFigures(case, counted) for case, counted in zip(cases, measured, strict=True)]


def _run(case: LoadCase, process: psutil.Process, clients: ClientProcesses) -> LoadRound:
    begun_s = cpu_s(process)
    spans = clients.run(case.loads)
    return LoadRound(tuple(spans), cpu_s(process) - begun_s)
