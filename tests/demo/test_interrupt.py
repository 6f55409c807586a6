"""The first signal ends the demonstration, soon or as soon as it suits; later ones do nothing."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from demo.interrupt import SIGNALS, Interrupt


@pytest.fixture(autouse=True)
def _former_handlers() -> Iterator[None]:
    """Whoever runs the tests, be it by nohup, gets its own signals again."""
    former = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_first_signal_raises_at_once(number: signal.Signals) -> None:
    """Ctrl-C, the word of a supervisor and a terminal that is closed are the same."""
    interrupt = Interrupt()
    interrupt.heed()
    interrupt.check()

    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_later_signals_do_nothing() -> None:
    """Whoever presses Ctrl-C again does not break off the end."""
    interrupt = Interrupt()
    interrupt.heed()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)

    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        interrupt.check()


def test_deferred_signal_is_raised_by_check() -> None:
    """Nothing is broken off in the middle: who is asked to check decides when."""
    interrupt = Interrupt()
    interrupt.heed()

    with ExitStack() as stack:
        stack.enter_context(suppress(KeyboardInterrupt))
        stack.enter_context(interrupt.deferred())
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupt.check()


def test_deferred_signal_is_raised_at_the_end() -> None:
    """Where nobody checks it ends what comes next, but no failure is replaced by it."""
    interrupt = Interrupt()
    interrupt.heed()

    with pytest.raises(KeyboardInterrupt), interrupt.deferred():
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(OSError, match="broken"), interrupt.deferred():
        raise OSError("broken")


def test_signal_is_taken_back() -> None:
    """Whoever took it meanwhile has it no longer."""
    interrupt = Interrupt()
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    interrupt.heed()

    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_closed_terminal_is_ignored_under_nohup() -> None:
    """Who says that it shall outlive the terminal gets that."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupt = Interrupt()

    interrupt.heed()

    signal.raise_signal(signal.SIGHUP)
    interrupt.check()
