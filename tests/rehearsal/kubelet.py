"""What a kubelet does with a native sidecar: starts, probes, restarts and ends it in its order.

Enough of it for one sidecar and one container beside it; the back-off of repeated restarts is
left out.
"""

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from subprocess import TimeoutExpired

from tests.image.container_runtime import RunningContainer
from tests.rehearsal.probe import Probe
from tests.rehearsal.steps import StepFailed

TICK_S = 0.05
MOST_STARTS = 3  # of a sidecar that never gets through
NO_SUCH_PATH = ": 404"  # the end of a failure that no waiting mends
LEAST_GRACE_S = 2.0  # a sidecar gets so much even if the others have used up all


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a container."""

    container: str
    what: str  # started, passed, failing, killing, ended …
    at_s: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class SidecarManifest:
    """How the sidecar is started, and its probes."""

    start: Callable[[], RunningContainer]
    startup: Probe
    liveness: Probe
    readiness: Probe
    grace_s: float


class Kubelet:
    """Watches a sidecar in a thread of its own, from `run` to `end_sidecar`.

    `pace` divides the periods of the probes and the grace of a restart: not the probes' timeouts,
    and not the grace of the pod's end, of which a good pod takes only what it needs.
    """

    def __init__(self, sidecar: SidecarManifest, *, pace: float) -> None:
        self._manifest = sidecar
        self._pace = pace
        self._thread = threading.Thread(target=self._watch, name="kubelet")
        self._is_ending = threading.Event()
        self.events: list[Event] = []
        self.sidecar: RunningContainer | None = None
        self.has_started = threading.Event()  # cleared while the sidecar is restarted
        self._deleted_at_s = 0.0
        self.is_ready = threading.Event()
        self.restarts = 0
        self.last_failure = "it was never asked"

    def run(self) -> None:
        """Start the sidecar; it is watched from now on."""
        self._thread.start()

    def wait_for_start(self, *, within_s: float) -> None:
        """Until the startup probe has passed; raises StepFailed with what went wrong."""
        deadline_s = time.monotonic() + within_s
        restarts = self.restarts
        while not self.has_started.wait(TICK_S):
            is_hopeless = self.restarts >= restarts + MOST_STARTS or not self._thread.is_alive()
            is_hopeless = is_hopeless or self.last_failure.endswith(NO_SUCH_PATH)
            if is_hopeless or time.monotonic() > deadline_s:
                said = self.sidecar.log.read_text() if self.sidecar else ""
                raise StepFailed("; ".join([self.last_failure, *self.told()[-4:]]) + f"\n{said}")

    def running(self) -> RunningContainer:
        """The sidecar's container."""
        assert self.sidecar
        return self.sidecar

    def told(self) -> list[str]:
        """All that happened so far, in its order."""
        return [f"{event.container}: {event.what}" for event in self.events]

    def stop_executor(self, executor: RunningContainer) -> int:
        """SIGTERM, and SIGKILL when its grace is used up; how it ended."""
        self._deleted_at_s = time.monotonic()
        status = self._ended("executor", executor, self._manifest.grace_s)
        self._tell("executor", f"ended with {status}")
        return status

    def end_sidecar(self) -> int:
        """SIGTERM, and SIGKILL when what is left of the grace is used up; how it ended."""
        self._is_ending.set()
        self._thread.join()
        left_s = self._deleted_at_s + self._manifest.grace_s - time.monotonic()
        status = self._ended("sidecar", self.running(), max(left_s, LEAST_GRACE_S))
        self._tell("sidecar", f"ended with {status}")
        return status

    def abandon(self) -> None:
        """Stop watching; harmless if it never did."""
        self._is_ending.set()
        if self._thread.is_alive():
            self._thread.join()
        if self.sidecar is not None:
            self.sidecar.remove()

    def _watch(self) -> None:
        try:
            self._watch_until_end()
        except (StepFailed, AssertionError, OSError) as error:
            self._tell("sidecar", f"cannot start: {error}")  # whoever waits for it is told

    def _watch_until_end(self) -> None:
        while not self._is_ending.is_set():
            self.sidecar = self._manifest.start()
            self._tell("sidecar", "started")
            reason = self._until_started(self.sidecar) or self._while_running(self.sidecar)
            self.has_started.clear()
            self.is_ready.clear()
            if self._is_ending.is_set():
                return
            self._tell("sidecar", reason)
            if self.sidecar.is_running:
                self._ended("sidecar", self.sidecar, self._manifest.grace_s / self._pace)
            self._tell("sidecar", f"ended with {self.sidecar.wait()}")
            self.restarts += 1

    def _until_started(self, sidecar: RunningContainer) -> str | None:
        """Why it has to be restarted, or None when it has started."""
        startup = _Count(self._manifest.startup, self._pace)
        while not self._is_ending.is_set() and sidecar.is_running:
            if startup.is_due():
                if startup.passes():
                    self._tell("sidecar", "startup probe passed")
                    self.has_started.set()
                    return None
                self.last_failure = startup.failure
            if startup.has_failed:
                return startup.failure
            time.sleep(TICK_S)
        return "ended by itself"

    def _while_running(self, sidecar: RunningContainer) -> str:
        """Why it has to be restarted."""
        liveness = _Count(self._manifest.liveness, self._pace)
        readiness = _Count(self._manifest.readiness, self._pace)
        while not self._is_ending.is_set() and sidecar.is_running:
            if liveness.is_due() and not liveness.passes():
                self._tell("sidecar", liveness.failure)
            if liveness.has_failed:
                return "liveness probe failed"
            if readiness.is_due():
                self._note_readiness(readiness)
            time.sleep(TICK_S)
        return "ended by itself"

    def _note_readiness(self, readiness: "_Count") -> None:
        if readiness.passes():
            self.is_ready.set()
        elif readiness.has_failed:
            self.is_ready.clear()
            self.last_failure = readiness.failure

    def _ended(self, name: str, container: RunningContainer, grace_s: float) -> int:
        self._tell(name, "SIGTERM")
        container.signal(signal.SIGTERM)
        try:
            return container.wait(grace_s)
        except TimeoutExpired:
            self._tell(name, "SIGKILL")
            container.signal(signal.SIGKILL)
            return container.wait()

    def _tell(self, container: str, what: str) -> None:
        self.events.append(Event(container, what))


class _Count:
    """Failures of a probe in a row, and when it is due."""

    def __init__(self, probe: Probe, pace: float) -> None:
        self._probe = probe
        self._period_s = probe.period_s / pace
        self._due_s = time.monotonic()
        self._failures = 0
        self.failure = ""

    @property
    def has_failed(self) -> bool:
        """Whether that is often enough to count."""
        return self._failures >= self._probe.failure_threshold

    def is_due(self) -> bool:
        """Whether its period has passed; if so, another one begins."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self._period_s
        return True

    def passes(self) -> bool:
        """Ask; a success makes the failures before it count no more."""
        failure = self._probe.failure()
        self._failures = 0 if failure is None else self._failures + 1
        self.failure = failure or ""
        return failure is None
