"""Faults in a seeded order, each at a moment that is told in records, not in seconds.

Strikes only; what must hold afterwards is the tests' business.
"""

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.link import Link
from tests.end_to_end.sidecar_process import SidecarProcess
from tests.end_to_end.until import until


@dataclass(slots=True)
class Victim:
    """The sidecar and the links to it."""

    sidecar: SidecarProcess
    links: Sequence[Link]
    stack: ExitStack
    chance: random.Random
    process: "subprocess.Popen[bytes]" = field(init=False)
    incarnations: int = 0
    is_over: Callable[[], bool] = field(default=lambda: False)  # nobody asks any more

    def start(self) -> None:
        """Start the sidecar, and wait until it is ready."""
        self.process = self.stack.enter_context(self.sidecar.running(ends_by=signal.SIGKILL))
        self.incarnations += 1

    def stop(self, by: signal.Signals) -> None:
        """End the sidecar; it must go, in its own time."""
        self.process.send_signal(by)
        self.process.wait(timeout=30)
        self.stack.pop_all()  # its context would end it once more


def kill(victim: Victim) -> bool:
    """SIGKILL, and a new sidecar on the same socket."""
    victim.stop(signal.SIGKILL)
    struck = victim.process.returncode == -signal.SIGKILL
    victim.start()
    return struck


def restart(victim: Victim) -> bool:
    """SIGTERM: the sidecar drains and goes; then a new one on the same socket."""
    victim.stop(signal.SIGTERM)
    struck = victim.process.returncode == 0
    victim.start()
    return struck


def freeze(victim: Victim) -> bool:
    """SIGSTOP for a while: nothing is lost, and nothing comes."""
    victim.process.send_signal(signal.SIGSTOP)
    until(lambda: _state(victim.process.pid) == "T")
    time.sleep(victim.chance.uniform(0.2, 1.5))  # the fault itself: so long it is frozen
    struck = _state(victim.process.pid) == "T"
    victim.process.send_signal(signal.SIGCONT)
    return struck


def cut(victim: Victim) -> bool:
    """All connections are reset."""
    return sum(link.cut() for link in victim.links) > 0


def cut_within_a_message(victim: Victim) -> bool:
    """The connections of one link are reset in the middle of an answer."""
    for link in victim.links:
        link.cut_after(victim.chance.randrange(1, 100_000))
    # A link whose partitions are done has nothing to cut.
    until(lambda: victim.is_over() or not all(link.is_cut_pending for link in victim.links))
    struck = not all(link.is_cut_pending for link in victim.links)
    for link in victim.links:
        link.cut_after(None)
    return struck


def black_hole(victim: Victim) -> bool:
    """Everything is swallowed for a while, and then the connections are gone."""
    _hold(victim)
    struck = cut(victim)
    _release(victim)
    return struck


def delay(victim: Victim) -> bool:
    """Everything is late, and nothing is lost."""
    struck = _hold(victim)
    _release(victim)
    return struck


def _hold(victim: Victim) -> bool:
    """Swallow everything for a while; whether there was anything."""
    for link in victim.links:
        link.hold()
    until(lambda: victim.is_over() or any(link.held_chunks for link in victim.links))
    time.sleep(victim.chance.uniform(0.1, 1.0))  # the fault itself
    return any(link.held_chunks for link in victim.links)


def _release(victim: Victim) -> None:
    for link in victim.links:
        link.release()


Fault = Callable[[Victim], bool]  # does it, and says whether it struck
EVERY_FAULT: dict[Fault, int] = {  # how often in one round
    kill: 4,
    restart: 2,
    freeze: 3,
    cut: 5,
    cut_within_a_message: 4,
    black_hole: 3,
    delay: 3,
}


def fault_script(
    faults: dict[Fault, int], chance: random.Random, records: int
) -> Iterator[tuple[int, Fault]]:
    """Each fault in a random order, and after how many emitted records it comes."""
    script = [fault for fault, times in faults.items() for _ in range(times)]
    chance.shuffle(script)
    step = records * 8 // 10 // len(script)
    for index, fault in enumerate(script):
        yield records // 20 + index * step + chance.randrange(step), fault


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
