"""Checks at the start: the thread limit, and addresses in use."""

import errno
import os
import threading
from collections.abc import Iterator

import pytest

from lookup_core.errors import ConfigurationError
from service.listeners import bind_fault
from service.resources.thread_limit import check_thread_limit, needed_threads

NO_STACK_BYTES = 1 << 50  # more than any address space has: no thread starts
IN_USE = "another process listens there: stop it, or set listen.http to another port"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EADDRINUSE, "x"), f"{os.strerror(errno.EADDRINUSE)}; {IN_USE}"),
        (OSError(errno.EACCES, "x"), os.strerror(errno.EACCES)),
        (OSError("no address"), "no address"),
    ],
)
def test_bind_fault_has_reason_and_remedy(error: OSError, reason: str) -> None:
    """A listener that cannot be bound is named with setting, address and reason."""
    fault = bind_fault("listen.http", "127.0.0.1:1", error)

    assert fault.faults == (f"listen.http: 127.0.0.1:1: {reason}",)


@pytest.fixture
def _no_thread_starts() -> Iterator[None]:
    before_bytes = threading.stack_size(NO_STACK_BYTES)
    yield
    threading.stack_size(before_bytes)


def test_possible_threads_are_accepted() -> None:
    """The check starts the needed threads and ends them."""
    before = threading.active_count()

    check_thread_limit(20)

    assert threading.active_count() == before
    assert needed_threads() > 3 * (os.cpu_count() or 1)


@pytest.mark.usefixtures("_no_thread_starts")
def test_missing_threads_are_a_fault() -> None:
    """The fault has the needed and the allowed number of threads."""
    with pytest.raises(ConfigurationError) as caught:
        check_thread_limit(7)

    (fault,) = caught.value.faults
    assert fault.startswith("threads: the sidecar needs 7 besides its main thread")
    assert "the system allows 0; raise" in fault
