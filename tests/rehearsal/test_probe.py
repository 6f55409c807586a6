"""A probe asks as its manifest says, and tells what went wrong."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.end_to_end.sidecar_process import free_port
from tests.k8s.manifests import Manifest
from tests.rehearsal.probe import Probe, named_port
from tests.rehearsal.steps import StepFailed

ADDRESS = "127.0.0.1"
PATIENCE_S = 60


def container(**probe: object) -> Manifest:
    """A sidecar with a liveness probe."""
    return {
        "name": "sidecar",
        "ports": [{"name": "health", "containerPort": 8816}],
        "livenessProbe": probe,
    }


def probe(port: int, path: str = "/", *, timeout_s: int = PATIENCE_S) -> Probe:
    """One that waits for its answer, however late it comes."""
    manifest = container(httpGet={"port": port, "path": path}, timeoutSeconds=timeout_s)
    return Probe.of(manifest, "livenessProbe", address=ADDRESS)


@contextmanager
def server() -> Iterator[int]:
    """The port of one whose status is its path."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(int(self.path.strip("/")))
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    with HTTPServer((ADDRESS, 0), Answer) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            yield serving.server_port
        finally:
            serving.shutdown()
            thread.join()


def test_probe_has_the_defaults_of_kubernetes() -> None:
    """What the manifest leaves out is 10 s, 1 s and three failures; a port may have a name."""
    read = Probe.of(container(httpGet={"port": "health"}), "livenessProbe", address=ADDRESS)

    assert read == Probe("livenessProbe", ADDRESS, 8816, "/", 10, 1, 3)


def test_probe_takes_what_the_manifest_says() -> None:
    """Each setting counts."""
    manifest = container(
        httpGet={"port": 1, "path": "/livez"}, periodSeconds=2, timeoutSeconds=4, failureThreshold=5
    )

    read = Probe.of(manifest, "livenessProbe", address=ADDRESS)

    assert read == Probe("livenessProbe", ADDRESS, 1, "/livez", 2, 4, 5)


@pytest.mark.parametrize(
    ("status", "is_success"), [(200, True), (204, True), (399, True), (404, False), (503, False)]
)
def test_statuses_below_400_pass(status: int, is_success: bool) -> None:  # noqa: FBT001 -- a case
    """As a kubelet sees it; a failure names what was asked and the status."""
    with server() as port:
        failure = probe(port, f"/{status}").failure()

    told = f"livenessProbe: GET http://{ADDRESS}:{port}/{status}: {status}"
    assert failure == (None if is_success else told)


def test_refused_probe_fails() -> None:
    """Nobody listens there."""
    assert "Connection refused" in str(probe(free_port()).failure())


def test_silent_probe_fails_in_its_time() -> None:
    """Somebody listens and says nothing."""
    with socket.create_server((ADDRESS, 0)) as silent:
        failure = probe(silent.getsockname()[1], timeout_s=1).failure()

    assert "timed out" in str(failure)


def test_unknown_port_is_told() -> None:
    """A name that the container has no port of."""
    with pytest.raises(StepFailed, match="sidecar has no port called 'healthy'"):
        named_port(container(), "healthy")
