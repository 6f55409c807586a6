"""Faults in a seeded order, each after a number of emitted records."""

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.witness import Witness
from tools.processes.link import Link
from tools.processes.sidecar_process import SidecarProcess
from tools.processes.until import soon, until


@dataclass(slots=True)
class Victim:
    """The sidecar and the links to it."""

    sidecar: SidecarProcess
    links: Sequence[Link]
    stack: ExitStack
    chance: random.Random
    process: "subprocess.Popen[bytes]" = field(init=False)
    incarnations: int = 0
    is_over: Callable[[], bool] = field(default=lambda: False)  # no partition runs

    def start(self) -> None:
        """Start the sidecar and wait until it is ready."""
        self.process = self.stack.enter_context(self.sidecar.running(ends_by=signal.SIGKILL))
        self.incarnations += 1

    def stop(self, by: signal.Signals) -> int:
        """End the sidecar with this signal; its exit status."""
        self.process.send_signal(by)
        self.process.wait(timeout=30)
        self.stack.pop_all()  # its context would end it again
        return self.process.returncode


def kill(victim: Victim, witness: Witness) -> bool:
    """SIGKILL, and a new sidecar on the same socket."""
    with _cutting_off(witness) as was_cut_off:
        is_killed = victim.stop(signal.SIGKILL) == -signal.SIGKILL
        struck = was_cut_off() and is_killed
    victim.start()
    return struck


def restart(victim: Victim, witness: Witness) -> bool:
    """SIGTERM: the sidecar drains and goes; then a new one on the same socket."""
    before = witness.sent_away
    struck = victim.stop(signal.SIGTERM) == 0
    victim.start()
    return struck and witness.sent_away > before


def freeze(victim: Victim, witness: Witness) -> bool:
    """SIGSTOP for some time: connections stay open without answers."""
    victim.process.send_signal(signal.SIGSTOP)
    until(lambda: _state(victim.process.pid) == "T")
    before = witness.given_up
    time.sleep(victim.chance.uniform(0.2, 1.5))  # the fault itself
    struck = _state(victim.process.pid) == "T" and _has_made_wait(witness, before)
    victim.process.send_signal(signal.SIGCONT)
    return struck


def cut(victim: Victim, witness: Witness) -> bool:
    """All connections are reset."""
    with _cutting_off(witness) as was_cut_off:
        return sum(link.cut() for link in victim.links) > 0 and was_cut_off()


def half_close(victim: Victim, witness: Witness) -> bool:
    """The clients read the end of their connections, and can still send."""
    with _cutting_off(witness) as was_cut_off:
        return sum(link.half_close() for link in victim.links) > 0 and was_cut_off()


def cut_within_a_message(victim: Victim, witness: Witness) -> bool:
    """The connections of one link are reset in the middle of an answer."""
    with _cutting_off(witness) as was_cut_off:
        for link in victim.links:
            link.cut_after(victim.chance.randrange(1, 100_000))
        # A link whose partitions are done has nothing to cut.
        until(lambda: victim.is_over() or not all(link.is_cut_pending for link in victim.links))
        for link in victim.links:
            link.cut_after(None)
        return was_cut_off()


def black_hole(victim: Victim, witness: Witness) -> bool:
    """All bytes are held for some time, then the connections are reset."""
    with _cutting_off(witness) as was_cut_off:
        _hold(victim)
        is_cut = sum(link.cut() for link in victim.links) > 0
        _release(victim)
        return is_cut and was_cut_off()


def delay(victim: Victim, witness: Witness) -> bool:
    """All bytes are late, and none is lost."""
    before = witness.given_up
    _hold(victim)
    struck = _has_made_wait(witness, before)
    _release(victim)
    return struck


Fault = Callable[[Victim, Witness], bool]  # returns whether it affected lookups
EVERY_FAULT: dict[Fault, int] = {  # how often in one round
    kill: 4,
    restart: 2,
    freeze: 3,
    cut: 5,
    cut_within_a_message: 4,
    half_close: 2,
    black_hole: 3,
    delay: 3,
}


def fault_script(
    faults: dict[Fault, int], chance: random.Random, records: int
) -> Iterator[tuple[int, Fault]]:
    """Each fault in random order, with the number of emitted records before it."""
    script = [fault for fault, times in faults.items() for _ in range(times)]
    chance.shuffle(script)
    step = records * 8 // 10 // len(script)
    for index, fault in enumerate(script):
        yield records // 20 + index * step + chance.randrange(step), fault


@contextmanager
def _cutting_off(witness: Witness) -> Iterator[Callable[[], bool]]:
    """Whether a client has since lost a connection with unanswered lookups."""
    before = witness.cut_off
    open_before = [each for each in witness.transports if not each.is_closed]

    def is_decided() -> bool:
        return witness.cut_off > before or all(each.is_closed for each in open_before)

    def was_cut_off() -> bool:
        soon(is_decided)
        return witness.cut_off > before

    yield was_cut_off


def _has_made_wait(witness: Witness, given_up_before: int) -> bool:
    """Whether lookups wait for the end of the fault, or have timed out."""
    return witness.unanswered > 0 or witness.given_up > given_up_before


def _hold(victim: Victim) -> None:
    for link in victim.links:
        link.hold()
    until(lambda: victim.is_over() or any(link.held_chunks for link in victim.links))
    time.sleep(victim.chance.uniform(0.1, 1.0))  # the fault itself


def _release(victim: Victim) -> None:
    for link in victim.links:
        link.release()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
