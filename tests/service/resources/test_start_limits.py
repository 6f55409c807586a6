"""Checks at the start: the thread limit."""

import os
import threading
from collections.abc import Iterator

import pytest

from lookup_core.errors import ConfigurationError
from service.commands.serve import check_thread_limit, needed_threads

NO_STACK_BYTES = 1 << 50  # more than any address space has: no thread starts


@pytest.fixture
def _no_thread_starts() -> Iterator[None]:
    before_bytes = threading.stack_size(NO_STACK_BYTES)
    yield
    threading.stack_size(before_bytes)


def test_possible_threads_are_accepted() -> None:
    """The check starts the needed threads and ends them."""
    before = set(threading.enumerate())  # those of other tests may end meanwhile

    check_thread_limit(20)

    assert before >= set(threading.enumerate())
    assert needed_threads() > 3 * (os.cpu_count() or 1)


@pytest.mark.usefixtures("_no_thread_starts")
def test_missing_threads_are_a_fault() -> None:
    """The fault has the needed and the allowed number of threads."""
    with pytest.raises(ConfigurationError) as caught:
        check_thread_limit(7)

    (fault,) = caught.value.faults
    assert fault.startswith("threads: the sidecar needs 7 besides its main thread")
    assert "the system allows 0; raise" in fault
