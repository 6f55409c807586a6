"""Kubelet for one native sidecar and one container: start, HTTP probes, restart, termination.

It has no back-off between restarts.
"""

import http.client
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from subprocess import TimeoutExpired

from tools.image.runtime import RunningContainer
from tools.k8s.manifests import Manifest
from tools.rehearsal.steps import StepFailed

TICK_S = 0.05
MOST_STARTS = 3  # of a sidecar whose startup probe never passes
NO_SUCH_PATH = ": 404"  # the end of a permanent failure
LEAST_GRACE_S = 2.0  # for a sidecar, if the other containers have used all of the grace period


@dataclass(frozen=True, slots=True)
class Probe:
    """An HTTP probe: its URL, period, timeout and failure threshold."""

    name: str
    address: str
    port: int
    path: str
    period_s: float
    timeout_s: float
    failure_threshold: int

    @classmethod
    def of(cls, container: Manifest, name: str, *, address: str) -> "Probe":
        """A probe of a container, with the defaults of Kubernetes."""
        manifest = container[name]
        return cls(
            name=name,
            address=address,
            port=named_port(container, manifest["httpGet"]["port"]),
            path=manifest["httpGet"].get("path", "/"),
            period_s=manifest.get("periodSeconds", 10),
            timeout_s=manifest.get("timeoutSeconds", 1),
            failure_threshold=manifest.get("failureThreshold", 3),
        )

    def failure(self) -> str | None:
        """Send one request; None on success, else the reason."""
        request = f"{self.name}: GET http://{self.address}:{self.port}{self.path}"
        connection = http.client.HTTPConnection(self.address, self.port, timeout=self.timeout_s)
        try:
            connection.request("GET", self.path)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return f"{request}: {error}"
        finally:
            connection.close()
        is_success = 200 <= status < 400
        return None if is_success else f"{request}: {status}"


def named_port(container: Manifest, port: str | int) -> int:
    """The number of a named or numbered port; raises StepFailed for an unknown name."""
    if isinstance(port, int):
        return port
    ports: dict[str, int] = {
        each["name"]: each["containerPort"] for each in container.get("ports", [])
    }
    if port not in ports:
        raise StepFailed(f"{container['name']} has no port called {port!r}")
    return ports[port]


@dataclass(frozen=True, slots=True)
class Event:
    """A state change of a container."""

    container: str
    what: str  # started, passed, failing, killing, ended …
    at_s: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class SidecarManifest:
    """How to start the sidecar, its probes, and its grace period."""

    start: Callable[[], RunningContainer]
    startup: Probe
    liveness: Probe
    readiness: Probe
    grace_s: float


class Kubelet:
    """Watches a sidecar in a thread, from `run` to `end_sidecar`.

    `pace` divides the periods of the probes and the grace period of a restart, and not the
    timeouts of the probes or the grace period of the pod.
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
        self.last_failure = "it was never probed"

    def run(self) -> None:
        """Start the sidecar and watch it."""
        self._thread.start()

    def wait_for_start(self, *, within_s: float) -> None:
        """Wait until the startup probe passes; raises StepFailed with the last failure."""
        deadline_s = time.monotonic() + within_s
        restarts = self.restarts
        while not self.has_started.wait(TICK_S):
            is_hopeless = self.restarts >= restarts + MOST_STARTS or not self._thread.is_alive()
            is_hopeless = is_hopeless or self.last_failure.endswith(NO_SUCH_PATH)
            if is_hopeless or time.monotonic() > deadline_s:
                log = self.sidecar.log.read_text() if self.sidecar else ""
                raise StepFailed("; ".join([self.last_failure, *self.history()[-4:]]) + f"\n{log}")

    def running(self) -> RunningContainer:
        """The sidecar's container."""
        assert self.sidecar
        return self.sidecar

    def history(self) -> list[str]:
        """All events, in their order."""
        return [f"{event.container}: {event.what}" for event in self.events]

    def stop_executor(self, executor: RunningContainer) -> int:
        """Send SIGTERM, then SIGKILL after the grace period; its exit status."""
        self._deleted_at_s = time.monotonic()
        status = self._ended("executor", executor, self._manifest.grace_s)
        self._record("executor", f"ended with {status}")
        return status

    def end_sidecar(self) -> int:
        """Send SIGTERM, then SIGKILL after the rest of the grace period; its exit status."""
        self._is_ending.set()
        self._thread.join()
        left_s = self._deleted_at_s + self._manifest.grace_s - time.monotonic()
        status = self._ended("sidecar", self.running(), max(left_s, LEAST_GRACE_S))
        self._record("sidecar", f"ended with {status}")
        return status

    def abandon(self) -> None:
        """Stop watching and kill the sidecar; harmless before `run`."""
        self._is_ending.set()
        if self._thread.is_alive():
            self._thread.join()
        if self.sidecar is not None:
            self.sidecar.remove()

    def _watch(self) -> None:
        try:
            self._watch_until_end()
        except (StepFailed, AssertionError, OSError) as error:
            self._record("sidecar", f"cannot start: {error}")  # for `wait_for_start`

    def _watch_until_end(self) -> None:
        while not self._is_ending.is_set():
            self.sidecar = self._manifest.start()
            self._record("sidecar", "started")
            reason = self._until_started(self.sidecar) or self._while_running(self.sidecar)
            self.has_started.clear()
            self.is_ready.clear()
            if self._is_ending.is_set():
                return
            self._record("sidecar", reason)
            if self.sidecar.is_running:
                self._ended("sidecar", self.sidecar, self._manifest.grace_s / self._pace)
            self._record("sidecar", f"ended with {self.sidecar.wait()}")
            self.restarts += 1

    def _until_started(self, sidecar: RunningContainer) -> str | None:
        """The reason for a restart, or None when it has started."""
        startup = _Count(self._manifest.startup, self._pace)
        while not self._is_ending.is_set() and sidecar.is_running:
            if startup.is_due():
                if startup.passes():
                    self._record("sidecar", "startup probe passed")
                    self.has_started.set()
                    return None
                self.last_failure = startup.failure
            if startup.has_failed:
                return startup.failure
            time.sleep(TICK_S)
        return "ended by itself"

    def _while_running(self, sidecar: RunningContainer) -> str:
        """The reason for a restart."""
        liveness = _Count(self._manifest.liveness, self._pace)
        readiness = _Count(self._manifest.readiness, self._pace)
        while not self._is_ending.is_set() and sidecar.is_running:
            if liveness.is_due() and not liveness.passes():
                self._record("sidecar", liveness.failure)
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
        self._record(name, "SIGTERM")
        container.signal(signal.SIGTERM)
        try:
            return container.wait(grace_s)
        except TimeoutExpired:
            self._record(name, "SIGKILL")
            container.signal(signal.SIGKILL)
            return container.wait()

    def _record(self, container: str, what: str) -> None:
        self.events.append(Event(container, what))


class _Count:
    """Consecutive failures of a probe, and its schedule."""

    def __init__(self, probe: Probe, pace: float) -> None:
        self._probe = probe
        self._period_s = probe.period_s / pace
        self._due_s = time.monotonic()
        self._failures = 0
        self.failure = ""

    @property
    def has_failed(self) -> bool:
        """Whether the failure threshold is reached."""
        return self._failures >= self._probe.failure_threshold

    def is_due(self) -> bool:
        """Whether its period has passed; starts the next period."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self._period_s
        return True

    def passes(self) -> bool:
        """Probe once; a success resets the failures."""
        failure = self._probe.failure()
        self._failures = 0 if failure is None else self._failures + 1
        self.failure = failure or ""
        return failure is None
