"""How one thread lets another one work and rest."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.rest_gate import RestGate

PATIENCE_S = 10.0


@contextmanager
def working(gate: RestGate, turn: threading.Semaphore) -> Iterator[None]:
    """A thread that takes a turn each time it may."""

    def work() -> None:
        while gate.pass_through():
            turn.release()

    thread = threading.Thread(target=work)
    thread.start()
    yield
    gate.end()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_closed_gate_lets_nobody_work() -> None:
    """Until it is opened, nothing is done."""
    gate, turn = RestGate(), threading.Semaphore(0)

    with working(gate, turn):
        gate.close()

    assert not turn.acquire(blocking=False)


def test_opened_gate_lets_work() -> None:
    """Once it is open, turn follows turn."""
    gate, turn = RestGate(), threading.Semaphore(0)

    with working(gate, turn):
        gate.open()

        assert turn.acquire(timeout=PATIENCE_S)
        assert turn.acquire(timeout=PATIENCE_S)


def test_closing_waits_for_the_turn() -> None:
    """After it was closed, nothing is under way, and nothing more is done."""
    gate, turn = RestGate(), threading.Semaphore(0)

    with working(gate, turn):
        gate.open()
        assert turn.acquire(timeout=PATIENCE_S)
        gate.close()
        while turn.acquire(blocking=False):
            pass

    assert not turn.acquire(blocking=False)
