"""Threads that cannot be started are found before anything relies on them."""

import os
import threading
from collections.abc import Iterator

import pytest

from lookup_core.errors import ConfigurationError
from service.resources.thread_limit import check_thread_limit, needed_threads

NO_STACK_BYTES = 1 << 50  # more than any address space has: no thread can be started


@pytest.fixture
def _no_thread_starts() -> Iterator[None]:
    before_bytes = threading.stack_size(NO_STACK_BYTES)
    yield
    threading.stack_size(before_bytes)


def test_each_processor_needs_threads() -> None:
    """The pools of the libraries grow with the processors."""
    assert needed_threads() > 3 * (os.cpu_count() or 1)


def test_threads_that_start_are_enough() -> None:
    """They are gone again when that is known."""
    before = threading.active_count()

    check_thread_limit(20)

    assert threading.active_count() == before


@pytest.mark.usefixtures("_no_thread_starts")
def test_missing_threads_are_told() -> None:
    """The fault says how many are needed, how many there may be, and what to raise."""
    with pytest.raises(ConfigurationError) as caught:
        check_thread_limit(7)

    (fault,) = caught.value.faults
    assert fault.startswith("threads: the sidecar needs 7 beside its main thread")
    assert "the system allowed 0; raise" in fault
