"""The memory of the process behind a Unix socket."""

import socket
from pathlib import Path

import numpy as np

from bench.memory import ResidentMemory


def test_peak_grows_with_the_process(tmp_path: Path) -> None:
    """The peak holds what was taken since the last time, also when it was given back."""
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        resident = ResidentMemory(path)
        resident.forget_peak()
        before = resident.peak_bytes()

        np.ones(50_000_000, np.uint8)

        assert resident.peak_bytes() - before > 40_000_000
